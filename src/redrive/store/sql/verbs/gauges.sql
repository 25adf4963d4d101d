-- gauges: what a monitoring system is told of this database, a row for each value. subject: a destination, a consumer, a duty or a table; empty
-- where the value is of the whole. reason: of what is parked. No row carries an id, a tenant or a text of a message.
-- Bounded whatever the depth: at most p_most rows of pending, of lease and of parked are counted; where there are more, `capped`
-- is 1 and the counts are lower bounds. Ages come from the ends of indexes, and are exact. Never the archive.
-- Locks nothing. Relies on: pending_due, pending_suspect, lane_wake_due, parked_listed (oldest_due, oldest_parked).
CREATE OR REPLACE FUNCTION redrive.gauges_1(p_live_seconds float8, p_most integer, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (name text, subject text, reason text, value float8) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp SET jit = off AS $body$
#variable_conflict use_column
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    RETURN QUERY
    WITH waiting AS MATERIALIZED (
        SELECT p.destination, count(*) AS pending, count(*) FILTER (WHERE p.due_at <= v_now) AS due,
               count(*) FILTER (WHERE p.first_failed_at IS NOT NULL AND NOT p.suspect) AS retrying,
               count(*) FILTER (WHERE p.suspect) AS suspects
          FROM (SELECT x.destination, x.due_at, x.first_failed_at, x.suspect FROM pending x LIMIT p_most) p
         GROUP BY p.destination
    ), held AS MATERIALIZED (
        SELECT l.destination, count(*) AS leased, count(*) FILTER (WHERE l.until < v_now) AS overdue
          FROM (SELECT x.destination, x.until FROM lease x LIMIT p_most) l
         GROUP BY l.destination
    ), put_aside AS MATERIALIZED (
        SELECT k.destination, k.reason, count(*) AS parked
          FROM (SELECT x.destination, x.reason FROM parked x LIMIT p_most) k
         GROUP BY k.destination, k.reason
    ), handled AS (
        SELECT DISTINCT unnest(r.destinations) AS name
          FROM relay r
         WHERE r.seen_at > v_now - make_interval(secs => p_live_seconds) AND NOT r.stopping AND NOT r.suspects_only
    ), places AS MATERIALIZED (
        SELECT n.name FROM (SELECT d.name FROM destination d UNION SELECT w.destination FROM waiting w
                            UNION SELECT h.destination FROM held h UNION SELECT k.destination FROM put_aside k) n
         ORDER BY n.name LIMIT 1000
    )
    SELECT g.name, n.name, '', g.value
      FROM places n
      LEFT JOIN waiting w ON w.destination = n.name
      LEFT JOIN held h ON h.destination = n.name
      LEFT JOIN destination d ON d.name = n.name
     CROSS JOIN LATERAL (VALUES
        ('messages_pending', coalesce(w.pending, 0)::float8),
        ('messages_due', coalesce(w.due, 0)::float8),
        ('retries_scheduled', coalesce(w.retrying, 0)::float8),
        ('suspects', coalesce(w.suspects, 0)::float8),
        ('messages_leased', coalesce(h.leased, 0)::float8),
        ('leases_overdue', coalesce(h.overdue, 0)::float8),
        ('oldest_pending_age_seconds',
         greatest(0, coalesce(extract(epoch FROM v_now - redrive.oldest_due(n.name)), 0))::float8),
        ('destination_paused', redrive.is_paused(n.name, v_now)::integer::float8),
        ('destination_handled', (n.name IN (SELECT x.name FROM handled x))::integer::float8),
        ('breaker_open',
         (coalesce(redrive.breaker_state(d.breaker, d.breaker_until, v_now), 'closed') IN ('open', 'half_open'))::integer::float8)
     ) AS g (name, value)
    UNION ALL
    SELECT g.name, n.name, r.reason, g.value
      FROM places n
     CROSS JOIN (VALUES ('dead'), ('held'), ('unrecorded')) AS r (reason)
      LEFT JOIN put_aside k ON k.destination = n.name AND k.reason = r.reason
     CROSS JOIN LATERAL (VALUES
        ('parked', coalesce(k.parked, 0)::float8),
        ('parked_oldest_age_seconds',
         greatest(0, coalesce(extract(epoch FROM v_now - redrive.oldest_parked(n.name, r.reason)), 0))::float8)
     ) AS g (name, value)
    UNION ALL
    SELECT g.name, d.name, '', g.value
      FROM duty d
     CROSS JOIN LATERAL (VALUES
        ('duty_overdue', (coalesce(d.finished_at, d.started_at, v_now)
                          + make_interval(secs => 3 * d.every_seconds + 60) < v_now)::integer::float8),
        ('duty_failing', (coalesce(d.result, '') LIKE 'failed%')::integer::float8)
     ) AS g (name, value)
    UNION ALL
    SELECT 'consumer_handled', c.name, '',
           EXISTS (SELECT 1 FROM worker w CROSS JOIN LATERAL redrive.reported_consumers(w.consumers) x
                    WHERE w.seen_at > v_now - make_interval(secs => p_live_seconds) AND x.name = c.name)::integer::float8
      FROM (SELECT x.name FROM consumer x ORDER BY x.name LIMIT 1000) c
    UNION ALL
    SELECT 'table_dead_rows', s.relname::text, '', s.n_dead_tup::float8
      FROM pg_stat_all_tables s
     WHERE s.schemaname = 'redrive' AND s.relname IN ('pending', 'lease', 'lane_wake')
    UNION ALL
    SELECT g.name, '', '', g.value
      FROM (SELECT count(*)::float8 AS live, count(DISTINCT r.version)::float8 AS versions,
                   count(*) FILTER (WHERE r.listener IN ('deaf', 'reconnecting'))::float8 AS deaf
              FROM relay r
             WHERE r.seen_at > v_now - make_interval(secs => p_live_seconds) AND NOT r.suspects_only) r
     CROSS JOIN LATERAL (VALUES
        ('relays_live', r.live),
        ('relay_versions', r.versions),
        ('relays_not_listening', r.deaf),
        ('workers_live', (SELECT count(*) FROM worker w
                           WHERE w.seen_at > v_now - make_interval(secs => p_live_seconds))::float8),
        ('replays_running', (SELECT count(*) FROM replay x WHERE x.finished_at IS NULL)::float8),
        ('lane_violations', (SELECT coalesce(sum(x.mended), 0) FROM duty x)::float8),
        ('oldest_snapshot_age_transactions', redrive.oldest_snapshot_age()::float8),
        ('partitions_ahead_seconds',
         coalesce(extract(epoch FROM (SELECT max(x.ends_at) FROM partition_range x) - v_now), 0)::float8),
        ('capped', (EXISTS (SELECT 1 FROM pending x OFFSET p_most LIMIT 1)
                    OR EXISTS (SELECT 1 FROM lease x OFFSET p_most LIMIT 1)
                    OR EXISTS (SELECT 1 FROM parked x OFFSET p_most LIMIT 1))::integer::float8)
     ) AS g (name, value);
END $body$;

-- oldest_due: since when the longest waiting message of a destination is due that nothing but a relay is needed for: unordered, a
-- suspect, or the head of a lane. Seven steps into indexes, however much waits.
CREATE OR REPLACE FUNCTION redrive.oldest_due(p_destination text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    RETURN (
        SELECT min(f.due_at)
          FROM (SELECT u.due_at
                  FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS l (level)
                 CROSS JOIN LATERAL (SELECT p.due_at FROM redrive.pending p
                                      WHERE p.destination = p_destination AND p.level = l.level AND p.lane IS NULL
                                        AND NOT p.suspect
                                      ORDER BY p.due_at LIMIT 1) u
                UNION ALL
                SELECT t.due_at
                  FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS l (level)
                 CROSS JOIN LATERAL (SELECT w.due_at FROM redrive.lane_wake w
                                      WHERE w.destination = p_destination AND w.level = l.level
                                      ORDER BY w.due_at LIMIT 1) t
                UNION ALL
                SELECT s.due_at
                  FROM (SELECT p.due_at FROM redrive.pending p
                         WHERE p.destination = p_destination AND p.suspect ORDER BY p.due_at LIMIT 1) s) f);
END $body$;

-- oldest_parked: when the message was parked that has waited longest for a person. One step into parked_listed.
CREATE OR REPLACE FUNCTION redrive.oldest_parked(p_destination text, p_reason text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    RETURN (SELECT k.parked_at FROM redrive.parked k
             WHERE k.reason = p_reason AND k.destination = p_destination
             ORDER BY k.parked_at LIMIT 1);
END $body$;

-- oldest_snapshot_age: how many transactions ago the oldest snapshot was taken that keeps dead rows of this database alive.
CREATE OR REPLACE FUNCTION redrive.oldest_snapshot_age() RETURNS bigint
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN (
        SELECT coalesce(max(h.age), 0)
          FROM (SELECT greatest(age(a.backend_xmin), age(a.backend_xid)) AS age
                  FROM pg_stat_activity a
                 WHERE (a.datname = current_database() OR a.backend_type = 'walsender') AND a.pid <> pg_backend_pid()
                   AND a.usesysid IS NOT NULL  -- an autovacuum worker has none
                   AND coalesce(a.query, '') NOT LIKE 'VACUUM %'
                UNION ALL
                SELECT age(x.transaction) FROM pg_prepared_xacts x WHERE x.database = current_database()
                UNION ALL
                SELECT age(s.xmin) FROM pg_replication_slots s) h);
END $body$;
