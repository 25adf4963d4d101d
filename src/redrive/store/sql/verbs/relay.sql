-- register, heartbeat, deregister: which relays live and what they handle (G-29).
CREATE OR REPLACE FUNCTION redrive.register_1(
    p_worker uuid, p_name text, p_host text, p_pid integer, p_version text, p_destinations text[], p_records boolean[],
    p_policies json, p_suspects_only boolean, p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
AS $body$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    INSERT INTO destination (name, has_record)
    SELECT d.name, d.has_record FROM unnest(p_destinations, p_records) AS d(name, has_record) ORDER BY d.name
    ON CONFLICT (name) DO UPDATE SET has_record = excluded.has_record
     WHERE destination.has_record IS DISTINCT FROM excluded.has_record;
    INSERT INTO relay (worker, name, host, pid, version, destinations, policies, suspects_only, started_at, seen_at)
    VALUES (p_worker, p_name, p_host, p_pid, p_version, p_destinations, p_policies, p_suspects_only, v_now, v_now)
    ON CONFLICT (worker) DO UPDATE SET seen_at = v_now, stopping = false;
END
$body$;

-- Returns what the database says about the destinations of this relay. A relay whose row is gone registers again.
-- p_listener: whether it hears the doorbell (listening, reconnecting, deaf or off).
CREATE OR REPLACE FUNCTION redrive.heartbeat_1(p_worker uuid, p_listener text, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (name text, paused boolean, pause_reason text, paused_by text, paused_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
AS $body$
#variable_conflict use_column
DECLARE
    v_now          timestamptz := coalesce(p_now, clock_timestamp());
    v_destinations text[];
BEGIN
    UPDATE relay r SET seen_at = v_now, listener = p_listener WHERE r.worker = p_worker RETURNING r.destinations INTO v_destinations;
    RETURN QUERY SELECT d.name, redrive.is_paused(d.name, v_now), d.pause_reason, d.paused_by, d.paused_at
                   FROM destination d WHERE d.name = ANY (v_destinations);
END
$body$;

CREATE OR REPLACE FUNCTION redrive.deregister_1(p_worker uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
AS $body$
BEGIN
    DELETE FROM relay r WHERE r.worker = p_worker;
    DELETE FROM doorbell b WHERE b.worker = p_worker;
END
$body$;

-- forget_relays: rows of relays that have not been seen for so long that they are of no interest to anybody.
CREATE OR REPLACE FUNCTION redrive.forget_relays_1(p_after_seconds float8, p_now timestamptz DEFAULT NULL)
RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
AS $body$
DECLARE
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_count integer;
BEGIN
    DELETE FROM relay r WHERE r.seen_at < v_now - make_interval(secs => p_after_seconds);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    DELETE FROM doorbell b WHERE b.idle_until < v_now - make_interval(secs => p_after_seconds);
    RETURN v_count;
END
$body$;
