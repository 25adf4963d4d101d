-- What people read. Security-invoker views: a reader sees through them only what its role and tenant may see.

-- Every message with its state; 'lost' would mean that a message is nowhere, and is never seen.
CREATE OR REPLACE VIEW redrive.messages WITH (security_invoker = true) AS
SELECT m.id, m.tenant, m.destination, m.kind, m.key, m.order_by, m.sequence, m.level, m.created_at, m.expires_at,
       m.content_type, coalesce(redrive.state_of(m.id), 'lost') AS state
  FROM redrive.message m;

-- Every attempt and act, and the claims under way as DISPATCHING (G-06).
CREATE OR REPLACE VIEW redrive.history WITH (security_invoker = true) AS
SELECT a.message_id, a.attempt, a.verb, a.tenant, a.destination, a.stage, a.version, a.settlement, a.answer, a.closed, a.code,
       a.text, a.reference, a.worker, a.claimed_at, a.completed_at, a.due_at, a.latency_ms, a.spent, a.in_doubt, a.actor,
       a.reason, a.policy_version
  FROM redrive.attempt a
UNION ALL
SELECT l.id, l.attempt, 'claim', l.tenant, l.destination, l.stage, l.version, NULL, NULL, NULL, 'DISPATCHING', NULL, NULL,
       l.worker, l.claimed_at, NULL, NULL, NULL, l.spent, l.in_doubt_since IS NOT NULL, NULL, NULL, l.policy_version
  FROM redrive.lease l;

-- One row: where all messages are. enqueued = pending + leased + parked + closed, at any snapshot (G-28).
CREATE OR REPLACE VIEW redrive.conservation WITH (security_invoker = true) AS
SELECT (SELECT count(*) FROM redrive.message) AS enqueued,
       (SELECT count(*) FROM redrive.pending) AS pending,
       (SELECT count(*) FROM redrive.lease) AS leased,
       (SELECT count(*) FROM redrive.parked) AS parked,
       (SELECT count(*) FROM redrive.attempt WHERE closed IS NOT NULL) AS closed;

-- open_lanes: the lanes that have something open, by number, at most p_window of them behind p_after: those with something
-- pending or in hand, or with p_halted those that something parked halts. steps counts them.
-- From lane to lane through lease_lane, pending_lane and parked_halting, so that a long lane costs no more than a short one.
-- Plain SQL and STABLE, so that it is inlined and walks no further than its reader reads.
CREATE OR REPLACE FUNCTION redrive.open_lanes(p_after bigint, p_halted boolean, p_window integer)
RETURNS TABLE (lane bigint, steps integer) LANGUAGE sql STABLE ROWS 100 AS $body$
    WITH RECURSIVE walked AS (
        SELECT p_after AS lane, 0 AS steps
        UNION ALL
        SELECT CASE WHEN p_halted
                    THEN (SELECT k.lane FROM redrive.parked k WHERE k.halts AND k.lane > w.lane ORDER BY k.lane LIMIT 1)
                    ELSE least((SELECT p.lane FROM redrive.pending p WHERE p.lane > w.lane ORDER BY p.lane LIMIT 1),
                               (SELECT l.lane FROM redrive.lease l WHERE l.lane > w.lane ORDER BY l.lane LIMIT 1)) END,
               w.steps + 1
          FROM walked w WHERE w.lane IS NOT NULL AND w.steps < p_window
    )
    SELECT w.lane, w.steps FROM walked w WHERE w.steps > 0 AND w.lane IS NOT NULL
$body$;

-- lane_head: the open message of a lane with the lowest sequence, and how it is with it: in_flight or ready; dead, held or
-- unrecorded, so that it halts its lane; suspect, paused or breaker_open (its destination), retrying or not_due, so that it
-- waits.
-- since: from when on. due_at: when it may go, where it waits for a time.
-- Not SECURITY DEFINER, and plain SQL, so that it is inlined: a probe of lease_lane, parked_halting and pending_lane each.
CREATE OR REPLACE FUNCTION redrive.lane_head(p_lane bigint, p_now timestamptz)
RETURNS TABLE (id uuid, destination text, sequence bigint, state text, since timestamptz, due_at timestamptz) LANGUAGE sql STABLE ROWS 1 AS $body$
    SELECT o.id, o.destination, o.sequence, o.state, o.since, o.due_at
      FROM (SELECT l.id, l.destination, l.sequence, 'in_flight' AS state, l.claimed_at AS since, NULL::timestamptz AS due_at
              FROM redrive.lease l WHERE l.lane = p_lane
            UNION ALL
            (SELECT k.id, k.destination, k.sequence, k.reason, k.parked_at, NULL
               FROM redrive.parked k WHERE k.lane = p_lane AND k.halts ORDER BY k.sequence LIMIT 1)
            UNION ALL
            SELECT p.id, p.destination, p.sequence, p.state,
                   CASE p.state WHEN 'retrying' THEN p.first_failed_at
                                WHEN 'not_due' THEN (SELECT m.created_at FROM redrive.message m WHERE m.id = p.id)
                                WHEN 'paused' THEN (SELECT greatest(d.paused_at, p.due_at) FROM redrive.destination d
                                                     WHERE d.name = p.destination)
                                WHEN 'breaker_open' THEN (SELECT greatest(d.breaker_changed_at, p.due_at)
                                                            FROM redrive.destination d WHERE d.name = p.destination)
                                ELSE p.due_at END,
                   CASE WHEN p.state IN ('retrying', 'not_due') THEN p.due_at END
              FROM (SELECT x.id, x.destination, x.sequence, x.first_failed_at, x.due_at,
                           CASE WHEN x.suspect THEN 'suspect'
                                WHEN redrive.is_paused(x.destination, p_now) THEN 'paused'
                                WHEN NOT redrive.is_open(x.destination, p_now) THEN 'breaker_open'
                                WHEN x.due_at <= p_now THEN 'ready'
                                WHEN x.first_failed_at IS NULL THEN 'not_due'
                                ELSE 'retrying' END AS state
                      FROM redrive.pending x WHERE x.lane = p_lane ORDER BY x.sequence LIMIT 1) p) o
     ORDER BY o.sequence
     LIMIT 1
$body$;
