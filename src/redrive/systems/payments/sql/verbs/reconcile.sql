-- Comparing the books: the verbs of the duty `payments.reconcile`, and of `redrive payments reconcile`. What agrees and what does
-- not is judged in Python (redrive.patterns.reconciliation); what follows from it is checked and carried out here. For a relay's
-- login, which may read no table of these.

-- statement_cursor: where the rail's statement was read up to; NULL = not at all.
CREATE OR REPLACE FUNCTION redrive_payments.statement_cursor_1(p_rail_type text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_payments, pg_temp
AS $body$
BEGIN
    RETURN (SELECT r.cursor FROM reconciliation r WHERE r.rail_type = p_rail_type);
END
$body$;

-- keep_statement: a page of a rail's statement and the cursor behind it; what was read before is not kept twice. An entry is of the
-- intent that has its instruction, participant and number: an edited payment has another token. Where two tenants have the same,
-- of that with its token.
-- Locks: the rail's row, so that two readers come one after the other. Relies on: intent_number.
CREATE OR REPLACE FUNCTION redrive_payments.keep_statement_1(p_rail_type text, p_entries json, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, pg_temp
AS $body$
DECLARE
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_cursor text;
BEGIN
    INSERT INTO reconciliation (rail_type) VALUES (p_rail_type) ON CONFLICT DO NOTHING;
    PERFORM 1 FROM reconciliation r WHERE r.rail_type = p_rail_type FOR UPDATE;
    INSERT INTO statement_entry (rail_type, cursor, token, outbox_id, instruction_id, participant_id, sequence_id, amount,
                                 currency, reference, effected_at, read_at)
    SELECT p_rail_type, e.cursor, e.token, i.outbox_id, e.instruction_id, e.participant_id, e.sequence_id, e.amount, e.currency,
           e.reference, to_timestamp(e.effected_at), v_now
      FROM ROWS FROM (json_to_recordset(p_entries)
                      AS (cursor text, token text, instruction_id text, participant_id text, sequence_id bigint,
                          amount numeric, currency text, reference text, effected_at float8)) WITH ORDINALITY
           AS e(cursor, token, instruction_id, participant_id, sequence_id, amount, currency, reference, effected_at, n)
      LEFT JOIN LATERAL (SELECT x.outbox_id FROM intent x
                          WHERE x.participant_id = e.participant_id AND x.sequence_id = e.sequence_id
                            AND x.instruction_id = e.instruction_id AND x.rail_type = p_rail_type
                          ORDER BY x.outbox_id::text = e.token DESC LIMIT 1) i ON true
     ORDER BY e.n
    ON CONFLICT (rail_type, cursor) DO NOTHING;
    v_cursor := p_entries -> (json_array_length(p_entries) - 1) ->> 'cursor';
    UPDATE reconciliation r SET cursor = v_cursor WHERE r.rail_type = p_rail_type;
    RETURN v_cursor;
END
$body$;

-- open_payments: payments of the rail that are not over on all sides, or have an effect that is not explained yet, behind an id:
-- what was asked for, and what the archive says became of it. A closed one names its closing row's reference and time.
-- Relies on: the key of unreconciled, statement_entry_open; the archive's index by message.
CREATE OR REPLACE FUNCTION redrive_payments.open_payments_1(p_rail_type text, p_after uuid, p_limit integer)
RETURNS TABLE (outbox_id uuid, tenant text, instruction_id text, participant_id text, sequence_id bigint, amount numeric,
               currency text, state text, in_doubt boolean, reference text, at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_payments, redrive, pg_temp
AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT i.outbox_id, i.tenant, i.instruction_id, i.participant_id, i.sequence_id, n.amount, n.currency,
           coalesce(k.reason, c.closed, CASE WHEN l.id IS NOT NULL THEN 'leased' WHEN p.id IS NOT NULL THEN 'pending' END,
                    'closed'),
           coalesce(p.in_doubt_since, l.in_doubt_since, k.in_doubt_since) IS NOT NULL, c.reference,
           coalesce(c.completed_at, k.parked_at)
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
END
$body$;

-- entries: all entries of these payments, compared before or not.
CREATE OR REPLACE FUNCTION redrive_payments.entries_1(p_outbox_ids uuid[])
RETURNS TABLE (outbox_id uuid, cursor text, token text, amount numeric, currency text, reference text, effected_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_payments, pg_temp
AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT e.outbox_id, e.cursor, e.token, e.amount, e.currency, e.reference, e.effected_at
      FROM unnest(p_outbox_ids) AS o(id)
     CROSS JOIN LATERAL (SELECT x.* FROM statement_entry x WHERE x.outbox_id = o.id) e
     ORDER BY e.position;
END
$body$;

-- strangers: entries of the rail that nobody asked for, behind a position.
CREATE OR REPLACE FUNCTION redrive_payments.strangers_1(p_rail_type text, p_after bigint, p_limit integer)
RETURNS TABLE (place bigint, cursor text, token text, instruction_id text, participant_id text, sequence_id bigint,
               amount numeric, currency text, reference text, effected_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_payments, pg_temp
AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT e.position, e.cursor, e.token, e.instruction_id, e.participant_id, e.sequence_id, e.amount, e.currency, e.reference,
           e.effected_at
      FROM statement_entry e
     WHERE e.rail_type = p_rail_type AND e.matched_at IS NULL AND e.outbox_id IS NULL AND e.position > p_after
     ORDER BY e.position LIMIT p_limit;
END
$body$;

-- agree: these payments are over on all sides; they are looked at again only if the rail says something new of them.
CREATE OR REPLACE FUNCTION redrive_payments.agree_1(p_rail_type text, p_outbox_ids uuid[], p_now timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, pg_temp
AS $body$
BEGIN
    DELETE FROM unreconciled u WHERE u.rail_type = p_rail_type AND u.outbox_id = ANY (p_outbox_ids);
    UPDATE statement_entry e SET matched_at = coalesce(p_now, clock_timestamp())
     WHERE e.outbox_id = ANY (p_outbox_ids) AND e.matched_at IS NULL;
END
$body$;

-- confirm_late: a payment that is parked, and that the rail's statement has: closed as delivered with the rail's reference, by the
-- actor `reconciliation`. Never on the caller's word: exactly one entry, of this amount and currency, must be there; else 'refused'.
-- Locks: as redrive.confirm_1 does.
CREATE OR REPLACE FUNCTION redrive_payments.confirm_late_1(p_outbox_id uuid, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, redrive, pg_temp
AS $body$
DECLARE
    v_entry record;
BEGIN
    SELECT min(e.reference) AS reference, min(e.cursor) AS cursor, min(e.rail_type) AS rail_type, count(*) AS entries,
           bool_and(e.amount = n.amount AND e.currency = n.currency) AS same
      INTO v_entry
      FROM statement_entry e
      JOIN intent i ON i.outbox_id = e.outbox_id
      JOIN instruction n ON n.tenant = i.tenant AND n.instruction_id = i.instruction_id
     WHERE e.outbox_id = p_outbox_id;
    IF v_entry.entries <> 1 OR NOT v_entry.same THEN
        RETURN 'refused';
    END IF;
    RETURN redrive.confirm_1(p_outbox_id, 'reconciliation',
                             format('entry %s of the statement of %s', v_entry.cursor, v_entry.rail_type), v_entry.reference,
                             p_now);
END
$body$;

-- ask_first: a payment that the rail's statement has, and that waits to be sent as if nothing had happened: what was known of it was
-- lost with a failover, or the rail refused and paid all the same. It is in doubt from now on, so that the rail is asked before
-- anything is sent; who cannot be asked gets the token again, or it is held. 'refused' without an entry, 'busy' where it does not
-- wait any more.
-- Locks: the pending row, then the audit chain.
CREATE OR REPLACE FUNCTION redrive_payments.ask_first_1(p_outbox_id uuid, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, redrive, pg_temp
AS $body$
DECLARE
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_entry record;
BEGIN
    SELECT e.cursor, e.rail_type INTO v_entry FROM statement_entry e WHERE e.outbox_id = p_outbox_id ORDER BY e.position LIMIT 1;
    IF NOT FOUND THEN
        RETURN 'refused';
    END IF;
    UPDATE redrive.pending p SET in_doubt_since = v_now WHERE p.id = p_outbox_id AND p.in_doubt_since IS NULL;
    IF NOT FOUND THEN
        RETURN 'busy';
    END IF;
    PERFORM redrive.audit('reconciliation', 'doubt', p_outbox_id::text,
                          format('entry %s of the statement of %s', v_entry.cursor, v_entry.rail_type), NULL, NULL, v_now);
    RETURN 'done';
END
$body$;

-- compared: what was found in one comparison of a rail. Findings that are not among these are resolved. Where there are none and
-- the rail was paused because the database began another epoch, it is resumed; what a person had paused is left to him.
-- Locks: the rail's row, findings, then as redrive.resume_1 does.
CREATE OR REPLACE FUNCTION redrive_payments.compared_1(p_rail_type text, p_findings json, p_now timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, redrive, pg_temp
AS $body$
DECLARE
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_clean boolean := json_array_length(p_findings) = 0;
BEGIN
    INSERT INTO reconciliation (rail_type) VALUES (p_rail_type) ON CONFLICT DO NOTHING;
    UPDATE reconciliation r SET compared_at = v_now, clean = v_clean WHERE r.rail_type = p_rail_type;
    UPDATE finding f SET resolved_at = v_now
     WHERE f.rail_type = p_rail_type AND f.resolved_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM json_to_recordset(p_findings) AS x(kind text, subject text)
                        WHERE x.kind = f.kind AND x.subject = f.subject);
    INSERT INTO finding (rail_type, kind, subject, sentence, evidence, first_seen_at, last_seen_at)
    SELECT p_rail_type, x.kind, x.subject, x.sentence, x.evidence, v_now, v_now
      FROM json_to_recordset(p_findings) AS x(kind text, subject text, sentence text, evidence json)
    ON CONFLICT (rail_type, kind, subject) DO UPDATE
       SET sentence = excluded.sentence, evidence = excluded.evidence, last_seen_at = excluded.last_seen_at, resolved_at = NULL;
    IF v_clean AND EXISTS (SELECT 1 FROM redrive.destination d
                            WHERE d.name = 'payments.' || p_rail_type AND d.pause_reason = 'epoch' AND d.paused_by = 'redrive') THEN
        PERFORM redrive.resume_1('payments.' || p_rail_type, 'reconciliation', 'the books agree', v_now);
    END IF;
END
$body$;

-- count_findings: how many of each kind are open, of each rail that was ever compared; 0 where there is none, so that a rail that
-- agrees is seen to agree. Relies on: finding_open.
CREATE OR REPLACE FUNCTION redrive_payments.count_findings_1()
RETURNS TABLE (rail_type text, kind text, findings float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_payments, pg_temp
AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.rail_type, k.kind,
           (SELECT count(*) FROM finding f WHERE f.rail_type = r.rail_type AND f.kind = k.kind AND f.resolved_at IS NULL)::float8
      FROM reconciliation r
     CROSS JOIN unnest(ARRAY['unexplained', 'twice', 'differs', 'other_reference', 'missing', 'given_up']) AS k(kind);
END
$body$;
