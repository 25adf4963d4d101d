-- submit: an instruction, its number and its message, in the caller's transaction (P-01). One statement; nothing is raised for
-- what a caller may get wrong, so that his transaction stays usable:
--   new                          it is enqueued; `state` is parked where the rail's statement has it already: it is held, and never sent
--   duplicate                    this instruction and key were submitted before: the first message's id, number and state
--   unknown_participant          there is none of that id
--   instruction_reused           the instruction exists with another `field`
--   already_submitted            under another key, and that one was paid, may have been, or may still be: outbox_id is that one
-- A second key is accepted when every earlier message of the instruction is dead or closed with proof that it had no effect; a
-- dead one is discarded with the same commit, so that it cannot be requeued afterwards.
-- It raises for a payload with other terms than those that are given beside it: no caller of ours does that.
-- Locks: the participant, the instruction, parked rows in id order, then as give_up and enqueue_internal do. The participant comes
-- first: submits of one participant go one by one, and numbers come in the order of their commits.
-- Relies on: the primary keys, intent_instruction_key.
CREATE OR REPLACE FUNCTION redrive_payments.submit_1(
    p_tenant text, p_instruction_id text, p_idempotency_key text, p_participant_id text, p_rail_type text, p_amount numeric,
    p_currency text, p_destination_hash bytea, p_destination_shown json, p_body bytea, p_headers json DEFAULT NULL,
    p_now timestamptz DEFAULT NULL, OUT result text, OUT field text, OUT outbox_id uuid, OUT sequence_id bigint, OUT state text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, redrive, pg_temp AS $body$
#variable_conflict use_column
DECLARE v_now   timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_known redrive_payments.instruction;
        v_new   record;
        -- Also the token seed: the same instruction and key have the same token in every database (P-05).
        v_key   text := format('payment:%s:%s:%s', char_length(p_instruction_id), p_instruction_id, p_idempotency_key);
BEGIN
    PERFORM redrive_payments.require_terms(p_amount, p_currency, p_destination_hash, p_destination_shown, p_body);
    PERFORM 1 FROM participant p WHERE p.tenant = p_tenant AND p.participant_id = p_participant_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        result := 'unknown_participant';
        RETURN;
    END IF;
    INSERT INTO instruction (tenant, instruction_id, participant_id, rail_type, amount, currency, destination_hash,
                             destination_shown, created_at)
    VALUES (p_tenant, p_instruction_id, p_participant_id, p_rail_type, p_amount, p_currency, p_destination_hash,
            p_destination_shown, v_now)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        SELECT * INTO STRICT v_known FROM instruction i
         WHERE i.tenant = p_tenant AND i.instruction_id = p_instruction_id FOR UPDATE;
        field := CASE WHEN v_known.participant_id <> p_participant_id THEN 'participant_id'
                      WHEN v_known.rail_type <> p_rail_type THEN 'rail_type'
                      WHEN v_known.amount <> p_amount THEN 'amount'
                      WHEN v_known.currency <> p_currency THEN 'currency'
                      WHEN v_known.destination_hash <> p_destination_hash THEN 'destination' END;
        IF field IS NOT NULL THEN
            result := 'instruction_reused';
            RETURN;
        END IF;
        SELECT 'duplicate', i.outbox_id, i.sequence_id, coalesce(redrive.state_of(i.outbox_id), 'closed')
          INTO result, outbox_id, sequence_id, state
          FROM intent i
         WHERE i.tenant = p_tenant AND i.instruction_id = p_instruction_id AND i.idempotency_key = p_idempotency_key;
        IF FOUND THEN RETURN; END IF;
        outbox_id := redrive_payments.give_up_earlier(p_tenant, p_instruction_id, p_idempotency_key, v_now);
        IF outbox_id IS NOT NULL THEN
            result := 'already_submitted';
            state := coalesce(redrive.state_of(outbox_id), 'closed');
            RETURN;
        END IF;
    END IF;
    SELECT * INTO STRICT v_new
      FROM redrive.enqueue_internal('payments.' || p_rail_type, p_body,
                             v_key,
                             p_tenant, 'payment', 'application/json', p_headers, NULL, NULL, 1::smallint,
                             'payments/' || p_participant_id, v_now, v_key) e;
    IF v_new.result <> 'new' THEN
        RAISE EXCEPTION 'The key of payment % was enqueued without submit, as message %.', p_instruction_id, v_new.id
            USING ERRCODE = '22023';
    END IF;
    INSERT INTO intent (outbox_id, tenant, instruction_id, idempotency_key, participant_id, sequence_id, rail_type, created_at, token)
    VALUES (v_new.id, p_tenant, p_instruction_id, p_idempotency_key, p_participant_id, v_new.sequence, p_rail_type, v_now,
            redrive.token_for(v_new.id, 1, 'first'));
    result := 'new';
    outbox_id := v_new.id;
    sequence_id := v_new.sequence;
    state := v_new.state;
    IF redrive_payments.link_entries(v_new.id, v_now) > 0 THEN
        state := coalesce(redrive.state_of(v_new.id), state);
    END IF;
END $body$;

-- require_terms: raises unless the payload says what the books will say of it. Both come from the caller, who may be any producer,
-- and what is sent is the payload.
CREATE OR REPLACE FUNCTION redrive_payments.require_terms(
    p_amount numeric, p_currency text, p_destination_hash bytea, p_destination_shown json, p_body bytea
) RETURNS void LANGUAGE plpgsql STABLE AS $body$
DECLARE v_terms record;
BEGIN
    v_terms := redrive_payments.terms_in(p_body);
    IF (v_terms.amount, v_terms.currency, v_terms.destination_hash, v_terms.destination_shown::jsonb)
       IS DISTINCT FROM (p_amount, p_currency, p_destination_hash, p_destination_shown::jsonb) THEN
        RAISE EXCEPTION 'The payload of a payment must have the amount, the currency and the destination that it is submitted with.'
            USING ERRCODE = '22023';
    END IF;
END $body$;

-- give_up_earlier: the first message of the instruction that may have had an effect, or may still have one; NULL where there is
-- none, and then those that are dead were discarded. What is parked is locked before it is judged: a requeue at the
-- same moment comes before us, and it is pending, or after us, and it is closed.
CREATE OR REPLACE FUNCTION redrive_payments.give_up_earlier(
    p_tenant text, p_instruction_id text, p_idempotency_key text, p_now timestamptz
) RETURNS uuid LANGUAGE plpgsql SET search_path = redrive_payments, redrive, pg_temp AS $body$
DECLARE v_earlier uuid[] := ARRAY(SELECT i.outbox_id FROM intent i
                                   WHERE i.tenant = p_tenant AND i.instruction_id = p_instruction_id ORDER BY i.outbox_id);
        v_id      uuid;
        v_dead    uuid[];
BEGIN
    PERFORM 1 FROM redrive.parked k WHERE k.id = ANY (v_earlier) ORDER BY k.id FOR UPDATE;
    FOREACH v_id IN ARRAY v_earlier LOOP
        IF NOT redrive_payments.is_without_effect(v_id) THEN RETURN v_id; END IF;
    END LOOP;
    v_dead := ARRAY(SELECT k.id FROM redrive.parked k WHERE k.id = ANY (v_earlier) ORDER BY k.id);
    FOREACH v_id IN ARRAY v_dead LOOP
        IF redrive.give_up(v_id, 'payments', 'submitted again under the key ' || p_idempotency_key, p_now) <> 'done' THEN
            RETURN v_id;
        END IF;
    END LOOP;
    RETURN NULL;
END $body$;

-- is_without_effect: whether it is proven that a message had none and will have none: dead or closed, not delivered, without
-- doubt at its end, and without evidence, an entry of a statement or a late answer that says otherwise. What retention has taken away
-- is no proof.
CREATE OR REPLACE FUNCTION redrive_payments.is_without_effect(p_id uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = redrive_payments, redrive, pg_temp AS $body$
BEGIN
    RETURN NOT redrive.has_evidence(p_id)
           AND NOT EXISTS (SELECT 1 FROM redrive.late_answer a
                        WHERE a.message_id = p_id AND coalesce(a.answer, '') NOT IN ('retryable', 'terminal'))
           AND NOT EXISTS (SELECT 1 FROM statement_entry e WHERE e.outbox_id = p_id)
           AND coalesce((SELECT k.reason = 'dead' AND k.in_doubt_since IS NULL FROM redrive.parked k WHERE k.id = p_id),
                        (SELECT a.closed <> 'delivered' AND NOT a.in_doubt FROM redrive.attempt a
                          WHERE a.message_id = p_id AND a.closed IS NOT NULL LIMIT 1),
                        false);
END $body$;

-- add_participant: whether he is new. Locks: nothing but his row.
CREATE OR REPLACE FUNCTION redrive_payments.add_participant_1(
    p_tenant text, p_participant_id text, p_name text DEFAULT '', p_now timestamptz DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, pg_temp AS $body$
BEGIN
    INSERT INTO participant (tenant, participant_id, name, created_at)
    VALUES (p_tenant, p_participant_id, p_name, coalesce(redrive.allowed_now(p_now), clock_timestamp()))
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $body$;

-- bump_participant_outbox_seq: the number that the participant's next payment takes. It is his until this transaction ends, since
-- the participant is locked for as long; it is used up by submit_1, and by nothing else: a number that no payment has would be a
-- gap for ever, and a caller who rolls back or thinks better of it must not make one. NULL where there is no such participant.
-- Locks: the participant, as submit_1 does. Relies on: stream's key (tenant, order_by).
CREATE OR REPLACE FUNCTION redrive_payments.bump_participant_outbox_seq(participant_id text, tenant text DEFAULT 'default')
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, redrive, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM participant p
      WHERE p.tenant = bump_participant_outbox_seq.tenant
        AND p.participant_id = bump_participant_outbox_seq.participant_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN RETURN NULL; END IF;
    -- A new statement: the transaction that had the participant before us has committed, and its number is seen.
    RETURN coalesce((SELECT s.last_sequence FROM redrive.stream s
                      WHERE s.tenant = bump_participant_outbox_seq.tenant
                        AND s.order_by = 'payments/' || bump_participant_outbox_seq.participant_id), 0) + 1;
END $body$;
