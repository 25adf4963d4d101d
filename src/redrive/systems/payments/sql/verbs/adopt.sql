-- adopt: a row of a legacy outbox as participant, instruction, intent and message, in the transaction that replaces it (P-09). Answers as
-- redrive.adopt_1 does; or 'instruction_reused' where the instruction is known with something else; or 'already_submitted' where a payment of
-- the instruction is known that may have had an effect. One that a rail's statement has is held with that evidence, and never sent.
-- Locks: as redrive.adopt_1. For the owner only.
CREATE OR REPLACE FUNCTION redrive_payments.adopt_1(
    p_tenant text, p_outbox_id uuid, p_as text, p_instruction_id text, p_idempotency_key text, p_participant_id text,
    p_sequence_id bigint, p_rail_type text, p_amount numeric, p_currency text, p_destination_hash bytea,
    p_destination_shown json, p_body bytea, p_headers json, p_attempts integer, p_reference text, p_created_at timestamptz,
    p_actor text, p_reason text, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SET search_path = redrive_payments, redrive, pg_temp AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_answer text;
BEGIN
    PERFORM redrive_payments.add_participant_1(p_tenant, p_participant_id, '', v_now);
    INSERT INTO instruction (tenant, instruction_id, participant_id, rail_type, amount, currency, destination_hash,
                             destination_shown, created_at)
    VALUES (p_tenant, p_instruction_id, p_participant_id, p_rail_type, p_amount, p_currency, p_destination_hash,
            p_destination_shown, p_created_at)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND AND NOT EXISTS (SELECT 1 FROM instruction n
                                  WHERE n.tenant = p_tenant AND n.instruction_id = p_instruction_id
                                    AND n.participant_id = p_participant_id AND n.rail_type = p_rail_type
                                    AND n.amount = p_amount AND n.currency = p_currency
                                    AND n.destination_hash = p_destination_hash) THEN
        RETURN 'instruction_reused';
    END IF;
    IF redrive_payments.adoptable_1(p_tenant, p_instruction_id, p_participant_id, p_rail_type, p_outbox_id) = 'already_submitted' THEN
        RETURN 'already_submitted';
    END IF;
    v_answer := redrive.adopt_1(p_outbox_id, p_as, 'payments.' || p_rail_type, p_body,
                                format('payment:%s:%s:%s', char_length(p_instruction_id), p_instruction_id, p_idempotency_key),
                                p_tenant, 'payment', p_headers, 'payments/' || p_participant_id, p_sequence_id, p_attempts,
                                p_outbox_id::text, p_created_at, p_actor, p_reason, p_reference, v_now);
    IF v_answer = 'done' THEN
        INSERT INTO intent (outbox_id, tenant, instruction_id, idempotency_key, participant_id, sequence_id, rail_type, created_at)
        VALUES (p_outbox_id, p_tenant, p_instruction_id, p_idempotency_key, p_participant_id, p_sequence_id, p_rail_type,
                p_created_at);
        PERFORM redrive_payments.link_entries(p_outbox_id, v_now);
    END IF;
    RETURN v_answer;
END $body$;

-- adoptable: what is known of an instruction that a legacy row is for: 'already_submitted' (a payment of it is here that may have had an
-- effect), 'in_statement' (the rail says that it was made), or NULL.
CREATE OR REPLACE FUNCTION redrive_payments.adoptable_1(
    p_tenant text, p_instruction_id text, p_participant_id text, p_rail_type text, p_outbox_id uuid
) RETURNS text LANGUAGE plpgsql STABLE SET search_path = redrive_payments, redrive, pg_temp AS $body$
BEGIN
    RETURN CASE
        WHEN EXISTS (SELECT 1 FROM intent i
                      WHERE i.tenant = p_tenant AND i.instruction_id = p_instruction_id
                        AND NOT redrive_payments.is_without_effect(i.outbox_id)) THEN 'already_submitted'
        WHEN EXISTS (SELECT 1 FROM statement_entry e
                      WHERE e.rail_type = p_rail_type AND e.outbox_id IS NULL
                        AND (e.token = p_outbox_id::text
                             OR (e.instruction_id = p_instruction_id AND e.participant_id = p_participant_id))) THEN 'in_statement' END;
END $body$;
