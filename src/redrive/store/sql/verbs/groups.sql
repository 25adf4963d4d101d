-- failure_fingerprint: what tells failures of one cause from others: destination, kind, error class, and the redacted text
-- without its numbers. Sixteen bytes.
CREATE OR REPLACE FUNCTION redrive.failure_fingerprint(p_destination text, p_kind text, p_error_class text, p_text text)
RETURNS bytea LANGUAGE sql STABLE AS $body$
    SELECT substr(sha256(convert_to(json_build_array(
        p_destination, coalesce(p_kind, ''), p_error_class,
        left(regexp_replace(lower(coalesce(p_text, '') COLLATE "C"), '[0-9]+', '#', 'g'), 200))::text, 'UTF8')), 1, 16)
$body$;

-- group_status: where a group stands: what a person said of it, unless time has overtaken that. A failure after its
-- resolution makes it regressed; a snooze ends by itself.
CREATE OR REPLACE FUNCTION redrive.group_status(
    p_status text, p_resolved_at timestamptz, p_snoozed_until timestamptz, p_last_seen_at timestamptz, p_now timestamptz
) RETURNS text LANGUAGE sql IMMUTABLE AS $body$
    SELECT CASE WHEN p_status = 'resolved' AND p_last_seen_at > p_resolved_at THEN 'regressed'
                WHEN p_status = 'snoozed' AND p_snoozed_until <= p_now THEN 'open'
                ELSE p_status END
$body$;

-- fold_failures: count the tally into its groups; returns how many failures were counted. Safe to run twice, and beside
-- itself: a row of the tally is counted in the transaction that deletes it.
-- Locks: rows of the tally with SKIP LOCKED, then groups in the order of their fingerprints.
CREATE OR REPLACE FUNCTION redrive.fold_failures_1(p_limit integer, p_now timestamptz DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_count integer;
BEGIN
    WITH counted AS (
        DELETE FROM failure_tally x WHERE x.ctid = ANY (ARRAY(
            SELECT t.ctid FROM failure_tally t LIMIT p_limit FOR UPDATE SKIP LOCKED))
        RETURNING x.*
    ), grouped AS (
        SELECT c.fingerprint, count(*) AS seen, min(c.at) AS first_at, max(c.at) AS last_at, min(c.destination) AS destination,
               min(c.kind) AS kind, min(c.error_class) AS error_class,
               (array_agg(c.sample_text ORDER BY c.at DESC))[1] AS sample_text
          FROM counted c GROUP BY c.fingerprint ORDER BY c.fingerprint
    ), folded AS (
        INSERT INTO failure_group AS g (fingerprint, destination, kind, error_class, sample_text, seen, first_seen_at,
                                        last_seen_at)
        SELECT n.fingerprint, n.destination, n.kind, n.error_class, n.sample_text, n.seen, n.first_at, n.last_at
          FROM grouped n ORDER BY n.fingerprint
        ON CONFLICT (fingerprint) DO UPDATE
           SET seen = g.seen + excluded.seen, first_seen_at = least(g.first_seen_at, excluded.first_seen_at),
               last_seen_at = greatest(g.last_seen_at, excluded.last_seen_at),
               sample_text = coalesce(excluded.sample_text, g.sample_text)
    )
    SELECT count(*) INTO v_count FROM counted;
    RETURN v_count;
END $body$;

-- mark_group: what a person says of a failure group: resolve, reopen, snooze (until p_until), ignore, assign (p_value is the
-- owner, NULL = none) or note (p_value). Answers 'done' or 'not_found'. What the tally holds is counted first, so that a
-- failure from before is not taken for one after it.
-- Locks: as fold_failures, then the group, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.mark_group_1(
    p_fingerprint bytea, p_act text, p_actor text, p_reason text, p_value text DEFAULT NULL, p_until timestamptz DEFAULT NULL,
    p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_before failure_group;
        v_after  failure_group;
BEGIN
    PERFORM redrive.fold_failures_1(100000, v_now);
    SELECT * INTO v_before FROM failure_group g WHERE g.fingerprint = p_fingerprint FOR UPDATE;
    IF NOT FOUND THEN RETURN 'not_found'; END IF;
    v_after := v_before;
    CASE p_act
        WHEN 'resolve' THEN v_after.status := 'resolved'; v_after.resolved_at := v_now;
        WHEN 'reopen' THEN v_after.status := 'open';
        WHEN 'snooze' THEN v_after.status := 'snoozed'; v_after.snoozed_until := p_until;
        WHEN 'ignore' THEN v_after.status := 'ignored';
        WHEN 'assign' THEN v_after.owner := p_value;
        WHEN 'note' THEN v_after.note := p_value;
        ELSE RAISE EXCEPTION 'A group cannot be marked %.', quote_literal(p_act) USING ERRCODE = '22023';
    END CASE;
    IF v_after.status <> 'snoozed' THEN
        v_after.snoozed_until := NULL;
    END IF;
    UPDATE failure_group g
       SET status = v_after.status, resolved_at = v_after.resolved_at, snoozed_until = v_after.snoozed_until,
           owner = v_after.owner, note = v_after.note
     WHERE g.fingerprint = p_fingerprint;
    PERFORM redrive.audit(p_actor, p_act, 'group ' || encode(p_fingerprint, 'hex'), p_reason,
                          redrive.group_json(v_before), redrive.group_json(v_after), v_now);
    RETURN 'done';
END $body$;

CREATE OR REPLACE FUNCTION redrive.group_json(p_group redrive.failure_group) RETURNS json
LANGUAGE sql STABLE AS $body$
    SELECT json_build_object('status', p_group.status, 'owner', p_group.owner, 'note', p_group.note,
                             'snoozed_until', extract(epoch FROM p_group.snoozed_until), 'seen', p_group.seen)
$body$;
