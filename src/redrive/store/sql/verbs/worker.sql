-- heartbeat_worker, deregister_worker: which workers live, what they consume and how far they are (G-29).

-- heartbeat_worker: the first one registers the worker; so does the next one after its row was lost. p_consumers: a JSON array; of each
-- consumer its name, whether its source is connected (null: not known yet), how many messages are in hand, for how long the oldest, how
-- long ago a message last ended (null: none has), and what was counted since the worker started. Anything else in it is left out.
-- Locks: the worker's row, then rows of consumers in name order.
CREATE OR REPLACE FUNCTION redrive.heartbeat_worker_1(
    p_worker uuid, p_name text, p_host text, p_pid integer, p_version text, p_consumers json, p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    INSERT INTO worker (worker, name, host, pid, version, consumers, started_at, seen_at)
    VALUES (p_worker, p_name, p_host, p_pid, p_version,
            coalesce((SELECT json_agg(row_to_json(c) ORDER BY c.name) FROM redrive.reported_consumers(p_consumers) c), '[]'),
            v_now, v_now)
    ON CONFLICT (worker) DO UPDATE SET seen_at = v_now, consumers = excluded.consumers;
    INSERT INTO consumer (name, seen_at)
    SELECT c.name, v_now FROM redrive.reported_consumers(p_consumers) c ORDER BY c.name
    ON CONFLICT (name) DO UPDATE SET seen_at = v_now WHERE consumer.seen_at NOT BETWEEN v_now - interval '1 minute' AND v_now;
END $body$;

CREATE OR REPLACE FUNCTION redrive.reported_consumers(p_consumers json) RETURNS TABLE (
    name text, is_connected boolean, in_hand bigint, oldest_seconds float8, ended_seconds float8, received bigint,
    processed bigint, deferred bigint, seen bigint, given_back bigint
) LANGUAGE sql IMMUTABLE AS $body$
    SELECT * FROM json_to_recordset(p_consumers) AS c(
        name text, is_connected boolean, in_hand bigint, oldest_seconds float8, ended_seconds float8, received bigint,
        processed bigint, deferred bigint, seen bigint, given_back bigint)
     WHERE c.name IS NOT NULL
$body$;

-- deregister_worker: it has stopped; its consumers are known for a week.
CREATE OR REPLACE FUNCTION redrive.deregister_worker_1(p_worker uuid, p_now timestamptz DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    WITH gone AS (DELETE FROM worker w WHERE w.worker = p_worker RETURNING w.consumers),
         known AS (SELECT c.name FROM consumer c
                    WHERE c.name IN (SELECT x.name FROM gone g CROSS JOIN LATERAL redrive.reported_consumers(g.consumers) x)
                    ORDER BY c.name FOR UPDATE)
    UPDATE consumer c SET seen_at = v_now FROM known k WHERE c.name = k.name;
END $body$;

-- forget_workers: deletes rows of workers that were last seen so many seconds ago, and consumers that no worker ran for a week.
CREATE OR REPLACE FUNCTION redrive.forget_workers(p_after_seconds float8, p_now timestamptz) RETURNS void
LANGUAGE sql AS $body$
    DELETE FROM redrive.worker w WHERE w.seen_at < p_now - make_interval(secs => p_after_seconds);
    DELETE FROM redrive.consumer c
     WHERE c.name IN (SELECT x.name FROM redrive.consumer x WHERE x.seen_at < p_now - interval '7 days'
                       ORDER BY x.name FOR UPDATE SKIP LOCKED);
$body$;
