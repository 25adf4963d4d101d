-- Comparing the books: the verbs of the duty `payments.reconcile`, and of `redrive payments reconcile`. What agrees and what does
-- not is judged in Python (redrive.patterns.reconciliation); what follows from it is checked and carried out here. For a relay's
-- login, which may read no table of these.

-- statement_cursor: where the rail's statement was read up to; NULL = not at all.
CREATE OR REPLACE FUNCTION redrive_payments.statement_cursor_1(p_rail_type text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_payments, pg_temp AS $body$
BEGIN
    RETURN (SELECT r.cursor FROM reconciliation r WHERE r.rail_type = p_rail_type);
END $body$;

-- keep_statement: a page of a rail's statement and the cursor behind it; what was read before is not kept twice. Each entry is linked to its
-- intent (intent_of); where that is not closed as delivered the entry is evidence that it was paid, so that it is never sent. An entry of no
-- intent of ours, on a rail whose statement lists only ours (p_exclusive), means that this database lacks what was committed last: an epoch
-- begins for that rail, unless it stands still for one already.
-- Locks: the rail's row, so that two readers come one after the other; then as redrive.add_evidence and redrive.begin_epoch do.
CREATE OR REPLACE FUNCTION redrive_payments.keep_statement_1(
    p_rail_type text, p_entries json, p_now timestamptz DEFAULT NULL, p_exclusive boolean DEFAULT true
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, pg_temp AS $body$
DECLARE v_now       timestamptz := coalesce(p_now, clock_timestamp());
        v_cursor    text;
        v_new       bigint[];
        v_strangers integer;
BEGIN
    INSERT INTO reconciliation (rail_type) VALUES (p_rail_type) ON CONFLICT DO NOTHING;
    PERFORM 1 FROM reconciliation r WHERE r.rail_type = p_rail_type FOR UPDATE;
    WITH kept AS (
        INSERT INTO statement_entry (rail_type, cursor, token, outbox_id, instruction_id, participant_id, sequence_id, amount,
                                     currency, reference, effected_at, read_at, destination_hash)
        SELECT p_rail_type, e.cursor, e.token,
               redrive_payments.intent_of(p_rail_type, e.token, e.instruction_id, e.participant_id, e.sequence_id),
               e.instruction_id, e.participant_id, e.sequence_id, e.amount, e.currency, e.reference, to_timestamp(e.effected_at), v_now,
               decode(e.destination_hash, 'hex')
          FROM ROWS FROM (json_to_recordset(p_entries)
                          AS (cursor text, token text, instruction_id text, participant_id text, sequence_id bigint,
                              amount numeric, currency text, reference text, effected_at float8, destination_hash text))
               WITH ORDINALITY
               AS e(cursor, token, instruction_id, participant_id, sequence_id, amount, currency, reference, effected_at,
                    destination_hash, n)
         ORDER BY e.n
        ON CONFLICT (rail_type, cursor) DO NOTHING
        RETURNING position, outbox_id
    )
    SELECT array_agg(k.position) FILTER (WHERE k.outbox_id IS NOT NULL), count(*) FILTER (WHERE k.outbox_id IS NULL)
      INTO v_new, v_strangers FROM kept k;
    v_cursor := p_entries -> (json_array_length(p_entries) - 1) ->> 'cursor';
    UPDATE reconciliation r SET cursor = v_cursor WHERE r.rail_type = p_rail_type;
    PERFORM redrive_payments.add_evidence_of(v_new, v_now);
    IF v_strangers > 0 AND p_exclusive
       AND EXISTS (SELECT 1 FROM redrive.destination d
                    WHERE d.name = 'payments.' || p_rail_type AND d.money AND d.pause_reason IS DISTINCT FROM 'epoch') THEN
        PERFORM redrive.begin_epoch('statement', NULL, format('The statement of %s has %s entries of no payment that is known here.',
                                                              p_rail_type, v_strangers), v_now, 'payments.' || p_rail_type);
    END IF;
    RETURN v_cursor;
END $body$;

-- intent_of: the intent that an entry of a statement is of, NULL = of none. By the token first: of a first version, or of any attempt. Then by
-- instruction and participant; where several have these, by the number, and then the latest. A statement knows no tenants.
-- Relies on: intent_token, intent_instruction; the archive's index by message.
CREATE OR REPLACE FUNCTION redrive_payments.intent_of(
    p_rail_type text, p_token text, p_instruction_id text, p_participant_id text, p_sequence_id bigint
) RETURNS uuid LANGUAGE plpgsql STABLE SET search_path = redrive_payments, redrive, pg_temp AS $body$
DECLARE v_token uuid := CASE WHEN p_token ~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' THEN p_token::uuid END;
BEGIN
    RETURN coalesce(
        (SELECT i.outbox_id FROM intent i
          WHERE coalesce(i.token, i.outbox_id) = v_token AND i.rail_type = p_rail_type LIMIT 1),
        (SELECT i.outbox_id FROM intent i
          WHERE i.instruction_id = p_instruction_id AND i.participant_id = p_participant_id AND i.rail_type = p_rail_type
          ORDER BY EXISTS (SELECT 1 FROM redrive.attempt a WHERE a.message_id = i.outbox_id AND a.token = v_token) DESC,
                   i.sequence_id = p_sequence_id DESC, i.outbox_id DESC LIMIT 1));
END $body$;

-- add_evidence_of: these entries are evidence for the payments that they are linked to, where those are not closed as delivered.
CREATE OR REPLACE FUNCTION redrive_payments.add_evidence_of(p_positions bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = redrive_payments, pg_temp AS $body$
BEGIN
    PERFORM redrive.add_evidence(e.outbox_id, 'statement', e.rail_type || ':' || e.cursor, e.reference, p_now)
       FROM (SELECT x.* FROM statement_entry x
              WHERE x.position = ANY (p_positions) AND redrive.state_of(x.outbox_id) IS DISTINCT FROM 'delivered'
              ORDER BY x.outbox_id, x.position) e;
END $body$;

-- link_entries: entries that were read before their payment was submitted are linked to it, and are evidence that it was made. How many.
-- An entry that is read at the same moment is not seen; the next comparison links it (link_strangers_1).
-- Locks: the entries, then as redrive.add_evidence does.
CREATE OR REPLACE FUNCTION redrive_payments.link_entries(p_outbox_id uuid, p_now timestamptz) RETURNS integer
LANGUAGE plpgsql SET search_path = redrive_payments, pg_temp AS $body$
DECLARE v_linked bigint[];
BEGIN
    WITH linked AS (
        UPDATE statement_entry e SET outbox_id = i.outbox_id
          FROM intent i
         WHERE i.outbox_id = p_outbox_id AND e.outbox_id IS NULL AND e.rail_type = i.rail_type
           AND (e.token = coalesce(i.token, i.outbox_id)::text
                OR (e.instruction_id = i.instruction_id AND e.participant_id = i.participant_id))
        RETURNING e.position
    )
    SELECT array_agg(l.position) INTO v_linked FROM linked l;
    PERFORM redrive_payments.add_evidence_of(v_linked, p_now);
    RETURN coalesce(cardinality(v_linked), 0);
END $body$;

-- open_payments: payments of the rail that are not over on all sides, or have an effect that is not explained yet, behind an id:
-- what was asked for, and what the archive says became of it. A closed one names its closing row's reference and time.
-- tokens: under which it was or would be sent. sent: of an edited one, the destination of each later version by its token, as it was sent.
-- Relies on: the key of unreconciled, statement_entry_open; the archive's index by message.
DO $replaced$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_proc p WHERE p.proname = 'open_payments_1' AND p.pronamespace = 'redrive_payments'::regnamespace
                                             AND 'tokens' = ANY (p.proargnames)) THEN
        DROP FUNCTION IF EXISTS redrive_payments.open_payments_1(text, uuid, integer);
        DROP FUNCTION IF EXISTS redrive_payments.entries_1(uuid[]);
    END IF;
END
$replaced$;
CREATE OR REPLACE FUNCTION redrive_payments.open_payments_1(
    p_rail_type text, p_after uuid, p_limit integer
) RETURNS TABLE (
    outbox_id uuid, tenant text, instruction_id text, participant_id text, sequence_id bigint, amount numeric, currency text,
    state text, in_doubt boolean, reference text, at timestamptz, destination_hash bytea, tokens uuid[], sent json
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_payments, redrive, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT i.outbox_id, i.tenant, i.instruction_id, i.participant_id, i.sequence_id, n.amount, n.currency,
           coalesce(k.reason, c.closed, CASE WHEN l.id IS NOT NULL THEN 'leased' WHEN p.id IS NOT NULL THEN 'pending' END,
                    'closed'),
           coalesce(p.in_doubt_since, l.in_doubt_since, k.in_doubt_since) IS NOT NULL, c.reference,
           coalesce(c.completed_at, k.parked_at), n.destination_hash,
           ARRAY(SELECT coalesce(i.token, i.outbox_id)
                 UNION SELECT coalesce(redrive.token_for(i.outbox_id, b.version, 'first'), i.outbox_id)
                         FROM redrive.body b WHERE b.message_id = i.outbox_id
                 UNION SELECT coalesce(a.token, i.outbox_id) FROM redrive.attempt a WHERE a.message_id = i.outbox_id),
           (SELECT json_object_agg(redrive.token_for(i.outbox_id, b.version, 'first'),
                                   convert_from(b.bytes, 'UTF8')::json -> 'destination')
              FROM redrive.body b WHERE b.message_id = i.outbox_id AND b.content_type = 'application/json')
      FROM (SELECT o.outbox_id
              FROM (SELECT u.outbox_id FROM unreconciled u WHERE u.rail_type = p_rail_type AND u.outbox_id > p_after
                    UNION
                    SELECT e.outbox_id FROM statement_entry e
                     WHERE e.rail_type = p_rail_type AND e.matched_at IS NULL AND e.outbox_id > p_after) o
             ORDER BY o.outbox_id LIMIT p_limit) o
      JOIN intent i ON i.outbox_id = o.outbox_id
      JOIN instruction n ON n.tenant = i.tenant AND n.instruction_id = i.instruction_id
      LEFT JOIN LATERAL (SELECT x.reason, x.in_doubt_since, x.parked_at FROM redrive.parked x WHERE x.id = i.outbox_id) k ON true
      LEFT JOIN LATERAL (SELECT x.id, x.in_doubt_since FROM redrive.lease x WHERE x.id = i.outbox_id) l ON true
      LEFT JOIN LATERAL (SELECT x.id, x.in_doubt_since FROM redrive.pending x WHERE x.id = i.outbox_id) p ON true
      LEFT JOIN LATERAL (SELECT x.closed, x.reference, x.completed_at FROM redrive.attempt x
                          WHERE x.message_id = i.outbox_id AND x.closed IS NOT NULL LIMIT 1) c ON true
     ORDER BY i.outbox_id;
END $body$;

-- entries: all entries of these payments, compared before or not.
CREATE OR REPLACE FUNCTION redrive_payments.entries_1(
    p_outbox_ids uuid[]
) RETURNS TABLE (
    outbox_id uuid, cursor text, token text, amount numeric, currency text, reference text, effected_at timestamptz,
    destination_hash bytea
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_payments, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT e.outbox_id, e.cursor, e.token, e.amount, e.currency, e.reference, e.effected_at, e.destination_hash
      FROM unnest(p_outbox_ids) AS o(id)
     CROSS JOIN LATERAL (SELECT x.* FROM statement_entry x WHERE x.outbox_id = o.id) e
     ORDER BY e.position;
END $body$;

-- link_strangers: entries of no intent are looked at again: their intent may have come since. How many were linked.
-- Locks: the rail's row, the entries, then as redrive.add_evidence does.
CREATE OR REPLACE FUNCTION redrive_payments.link_strangers_1(p_rail_type text, p_now timestamptz DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, pg_temp AS $body$
DECLARE v_linked bigint[];
BEGIN
    PERFORM 1 FROM reconciliation r WHERE r.rail_type = p_rail_type FOR UPDATE;
    WITH linked AS (
        UPDATE statement_entry e SET outbox_id = i.id
          FROM (SELECT x.position, redrive_payments.intent_of(x.rail_type, x.token, x.instruction_id, x.participant_id, x.sequence_id) AS id
                  FROM statement_entry x
                 WHERE x.rail_type = p_rail_type AND x.matched_at IS NULL AND x.outbox_id IS NULL) i
         WHERE i.id IS NOT NULL AND e.position = i.position AND e.outbox_id IS NULL
        RETURNING e.position
    )
    SELECT array_agg(l.position) INTO v_linked FROM linked l;
    PERFORM redrive_payments.add_evidence_of(v_linked, coalesce(p_now, clock_timestamp()));
    RETURN coalesce(cardinality(v_linked), 0);
END $body$;

-- strangers: entries of the rail that no payment asked for, behind a position.
CREATE OR REPLACE FUNCTION redrive_payments.strangers_1(
    p_rail_type text, p_after bigint, p_limit integer
) RETURNS TABLE (
    place bigint, cursor text, token text, instruction_id text, participant_id text, sequence_id bigint, amount numeric,
    currency text, reference text, effected_at timestamptz
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_payments, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT e.position, e.cursor, e.token, e.instruction_id, e.participant_id, e.sequence_id, e.amount, e.currency, e.reference,
           e.effected_at
      FROM statement_entry e
     WHERE e.rail_type = p_rail_type AND e.matched_at IS NULL AND e.outbox_id IS NULL AND e.position > p_after
     ORDER BY e.position LIMIT p_limit;
END $body$;

-- agree: these payments are over on all sides; they are looked at again only if the rail says something new of them.
CREATE OR REPLACE FUNCTION redrive_payments.agree_1(p_rail_type text, p_outbox_ids uuid[], p_now timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, pg_temp AS $body$
BEGIN
    DELETE FROM unreconciled u WHERE u.rail_type = p_rail_type AND u.outbox_id = ANY (p_outbox_ids);
    UPDATE statement_entry e SET matched_at = coalesce(p_now, clock_timestamp())
     WHERE e.outbox_id = ANY (p_outbox_ids) AND e.matched_at IS NULL;
END $body$;

-- confirm_late: a payment that waits or is parked, and that the rail's statement has: closed as delivered with the rail's reference, by the
-- actor `reconciliation`. Never on the caller's word: exactly one entry, of this amount and currency, and to this destination where the
-- statement says it, must be there; else 'refused', and the payment is held with what was found (hold_proven).
-- Locks: as redrive.confirm_proven does.
CREATE OR REPLACE FUNCTION redrive_payments.confirm_late_1(p_outbox_id uuid, p_now timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, redrive, pg_temp AS $body$
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_entry record;
BEGIN
    SELECT min(e.reference) AS reference, min(e.cursor) AS cursor, min(e.rail_type) AS rail_type, count(*) AS entries,
           bool_and(e.amount = n.amount AND e.currency = n.currency
                    -- Of an edited payment the destination was compared by the caller: its hash is of another version.
                    AND (e.destination_hash IS NULL OR e.destination_hash = n.destination_hash
                         OR EXISTS (SELECT 1 FROM redrive.body b WHERE b.message_id = i.outbox_id))) AS same
      INTO v_entry
      FROM statement_entry e
      JOIN intent i ON i.outbox_id = e.outbox_id
      JOIN instruction n ON n.tenant = i.tenant AND n.instruction_id = i.instruction_id
     WHERE e.outbox_id = p_outbox_id;
    IF v_entry.entries <> 1 OR NOT v_entry.same THEN RETURN 'refused'; END IF;
    RETURN redrive.confirm_proven(p_outbox_id, 'reconciliation',
                                  format('entry %s of the statement of %s', v_entry.cursor, v_entry.rail_type), v_entry.reference, v_now);
END $body$;

-- compared: what was found in one comparison of a rail. Findings that are not among these are resolved; one that people acknowledged stays so
-- while its evidence is the same. p_began_at: when reading the statement began. p_changed: the comparison closed or held something, so that
-- only the next one can be clean. Where it is clean, a rail that stands still for an epoch goes on if it may (redrive.note_comparison).
-- Answers the findings that are acknowledged, as [[kind, subject], …].
-- Locks: the rail's row, findings, then as redrive.note_comparison does.
CREATE OR REPLACE FUNCTION redrive_payments.compared_1(
    p_rail_type text, p_findings json, p_now timestamptz DEFAULT NULL, p_began_at timestamptz DEFAULT NULL,
    p_changed boolean DEFAULT false
) RETURNS json LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, redrive, pg_temp AS $body$
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_clean boolean;
BEGIN
    INSERT INTO reconciliation (rail_type) VALUES (p_rail_type) ON CONFLICT DO NOTHING;
    PERFORM 1 FROM reconciliation r WHERE r.rail_type = p_rail_type FOR UPDATE;
    UPDATE finding f SET resolved_at = v_now
     WHERE f.rail_type = p_rail_type AND f.resolved_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM json_to_recordset(p_findings) AS x(kind text, subject text)
                        WHERE x.kind = f.kind AND x.subject = f.subject);
    INSERT INTO finding AS f (rail_type, kind, subject, sentence, evidence, first_seen_at, last_seen_at)
    SELECT p_rail_type, x.kind, x.subject, x.sentence, x.evidence, v_now, v_now
      FROM json_to_recordset(p_findings) AS x(kind text, subject text, sentence text, evidence json)
    ON CONFLICT (rail_type, kind, subject) DO UPDATE
       SET sentence = excluded.sentence, evidence = excluded.evidence, last_seen_at = excluded.last_seen_at, resolved_at = NULL,
           acknowledged_at = CASE WHEN f.acknowledged_hash = redrive_payments.evidence_hash(excluded.evidence)
                                  THEN f.acknowledged_at END;
    v_clean := NOT p_changed
           AND NOT EXISTS (SELECT 1 FROM finding f
                            WHERE f.rail_type = p_rail_type AND f.resolved_at IS NULL AND f.acknowledged_at IS NULL)
           AND NOT EXISTS (SELECT 1 FROM statement_entry e
                            WHERE e.rail_type = p_rail_type AND e.matched_at IS NULL AND e.outbox_id IS NOT NULL
                              AND redrive.state_of(e.outbox_id) IN ('pending', 'parked')
                              AND NOT EXISTS (SELECT 1 FROM finding f
                                               WHERE f.rail_type = p_rail_type AND f.subject = e.outbox_id::text
                                                 AND f.resolved_at IS NULL));
    UPDATE reconciliation r SET compared_at = v_now, clean = v_clean WHERE r.rail_type = p_rail_type;
    IF p_began_at IS NOT NULL THEN
        PERFORM redrive.note_comparison('payments.' || p_rail_type, p_began_at, v_clean, 'reconciliation', 'the books agree', v_now);
    END IF;
    RETURN coalesce((SELECT json_agg(json_build_array(f.kind, f.subject)) FROM finding f
                      WHERE f.rail_type = p_rail_type AND f.resolved_at IS NULL AND f.acknowledged_at IS NOT NULL), '[]');
END $body$;

CREATE OR REPLACE FUNCTION redrive_payments.evidence_hash(p_evidence json) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $body$
    SELECT sha256(convert_to(p_evidence::jsonb::text, 'UTF8'))
$body$;

-- acknowledge_finding: a finding is known, and explained by something outside (p_reference: of a reversal or a refund). Two people do it, on
-- the same evidence. Answers 'done', 'second_person' or 'approver' (redrive.second_person), 'not_found', 'acknowledged' (already), or
-- 'not_registered' where no relay has declared the rail yet.
-- Locks: the finding, then as redrive.second_person does, then the audit chain.
CREATE OR REPLACE FUNCTION redrive_payments.acknowledge_finding_1(
    p_rail_type text, p_kind text, p_subject text, p_actor text, p_reason text, p_reference text, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, redrive, pg_temp AS $body$
DECLARE v_now     timestamptz := coalesce(p_now, clock_timestamp());
        v_finding redrive_payments.finding;
        v_subject text;
        v_second  text;
BEGIN
    SELECT * INTO v_finding FROM finding f
     WHERE f.rail_type = p_rail_type AND f.kind = p_kind AND f.subject = p_subject AND f.resolved_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF v_finding.acknowledged_at IS NOT NULL THEN
        RETURN 'acknowledged';
    ELSIF NOT EXISTS (SELECT 1 FROM redrive.destination d WHERE d.name = 'payments.' || p_rail_type AND d.money) THEN
        RETURN 'not_registered';
    END IF;
    -- The evidence and the reference are part of what both ask for.
    v_subject := format('finding %s %s %s', p_rail_type, p_kind, p_subject);
    v_second := redrive.second_person('payments.' || p_rail_type, 'acknowledge', v_subject, p_actor, p_reason,
                                      json_build_array(encode(redrive_payments.evidence_hash(v_finding.evidence), 'hex')), v_now,
                                      json_build_object('reference', p_reference));
    IF v_second IS NOT NULL THEN RETURN v_second; END IF;
    UPDATE finding f SET acknowledged_at = v_now, acknowledged_by = p_actor, acknowledged_reason = p_reason,
                         acknowledged_reference = p_reference, acknowledged_hash = redrive_payments.evidence_hash(f.evidence)
     WHERE f.rail_type = p_rail_type AND f.kind = p_kind AND f.subject = p_subject;
    PERFORM redrive.audit(p_actor, 'acknowledge', v_subject, p_reason, NULL,
                          json_build_object('reference', p_reference), v_now);
    RETURN 'done';
END $body$;

-- count_findings: how many of each kind are open, of each rail that was ever compared; 0 where there is none, so that a rail that
-- agrees is seen to agree. Relies on: finding_open.
CREATE OR REPLACE FUNCTION redrive_payments.count_findings_1() RETURNS TABLE (rail_type text, kind text, findings float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_payments, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.rail_type, k.kind,
           (SELECT count(*) FROM finding f WHERE f.rail_type = r.rail_type AND f.kind = k.kind AND f.resolved_at IS NULL
               AND f.acknowledged_at IS NULL)::float8
      FROM reconciliation r
     CROSS JOIN unnest(ARRAY['unexplained', 'twice', 'differs', 'other_reference', 'other_token', 'missing', 'given_up']) AS k(kind);
END $body$;

-- ask_first: it changed `pending` without the lane of the payment. What the statement has is confirmed or held now.
