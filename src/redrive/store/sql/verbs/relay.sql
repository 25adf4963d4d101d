-- register, heartbeat, deregister: which relays live and what they handle (G-29).
-- p_destinations: a JSON array; of each destination its name, and what all relays must know of it: has_record, money, in_doubt, address,
-- effects_within_seconds, rate_per_second, concurrency_limit. What the last relay says counts. What is in flight when a limit is new
-- counts too. Refused with SQLSTATE RDA01 (check_addresses) where money would be moved at another address while something is open at
-- the one before.
-- Locks: an advisory lock where money is declared; destination rows in name order; leases with SKIP LOCKED.
CREATE OR REPLACE FUNCTION redrive.register_1(
    p_worker uuid, p_name text, p_host text, p_pid integer, p_version text, p_destinations json, p_policies json,
    p_suspects_only boolean, p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    PERFORM redrive.watch_epoch(v_now);
    PERFORM redrive.check_addresses(p_worker, p_destinations, v_now);
    INSERT INTO destination (name, has_record, money, in_doubt, address, effects_within_seconds, rate_per_second, concurrency_limit)
    SELECT d.name, coalesce(d.has_record, false), coalesce(d.money, false), coalesce(d.in_doubt, 'resend'), d.address,
           coalesce(d.effects_within_seconds, 0), d.rate_per_second, d.concurrency_limit
      FROM redrive.declared_destinations(p_destinations) d
     ORDER BY d.name
    ON CONFLICT (name) DO UPDATE SET has_record = excluded.has_record, money = excluded.money, in_doubt = excluded.in_doubt,
                                     address = excluded.address, effects_within_seconds = excluded.effects_within_seconds,
                                     rate_per_second = excluded.rate_per_second,
                                     concurrency_limit = excluded.concurrency_limit
     WHERE (destination.has_record, destination.money, destination.in_doubt, destination.address,
            destination.effects_within_seconds, destination.rate_per_second, destination.concurrency_limit)
           IS DISTINCT FROM (excluded.has_record, excluded.money, excluded.in_doubt, excluded.address,
                             excluded.effects_within_seconds, excluded.rate_per_second, excluded.concurrency_limit);
    IF EXISTS (SELECT 1 FROM redrive.declared_destinations(p_destinations) d WHERE d.concurrency_limit IS NOT NULL) THEN
        UPDATE lease x SET counted = true WHERE x.ctid = ANY (ARRAY(
            SELECT l.ctid FROM lease l
             WHERE NOT l.counted AND l.destination = ANY (ARRAY(SELECT d.name FROM destination d WHERE d.limited))
               FOR UPDATE SKIP LOCKED));
    END IF;
    INSERT INTO relay (worker, name, host, pid, version, destinations, policies, suspects_only, started_at, seen_at, addresses)
    VALUES (p_worker, p_name, p_host, p_pid, p_version,
            ARRAY(SELECT d.name FROM redrive.declared_destinations(p_destinations) d ORDER BY d.name), p_policies, p_suspects_only,
            v_now, v_now,
            coalesce((SELECT json_object_agg(d.name, d.address) FROM redrive.declared_destinations(p_destinations) d
                       WHERE d.address IS NOT NULL), '{}'))
    ON CONFLICT (worker) DO UPDATE SET seen_at = v_now, stopping = false, addresses = excluded.addresses;
END $body$;

-- check_addresses: where a destination that moves money has another address than before, a lookup would ask the wrong place about what is
-- in doubt, and say that it is absent. So the address may change only when nothing of it is in doubt or leased, and when no other relay
-- that was seen within a minute uses another one. Raises SQLSTATE RDA01: the name as message, and why as detail (in_doubt, leased, relay).
-- Locks: an advisory lock until the end of the transaction, so that two relays with two addresses see each other.
CREATE OR REPLACE FUNCTION redrive.check_addresses(p_worker uuid, p_destinations json, p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_money record;
        v_why   text;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM redrive.declared_destinations(p_destinations) d WHERE d.money) THEN RETURN; END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('redrive.address', 0));
    FOR v_money IN
        SELECT d.name, d.address, k.address AS known FROM redrive.declared_destinations(p_destinations) d
          LEFT JOIN destination k ON k.name = d.name
         WHERE d.money ORDER BY d.name
    LOOP
        v_why := CASE
            WHEN EXISTS (SELECT 1 FROM relay r
                          WHERE r.worker <> p_worker AND r.seen_at > p_now - interval '1 minute'
                            AND r.addresses ->> v_money.name <> coalesce(v_money.address, '')) THEN 'relay'
            WHEN v_money.known IS NULL OR v_money.known IS NOT DISTINCT FROM v_money.address THEN NULL
            WHEN EXISTS (SELECT 1 FROM pending p WHERE p.destination = v_money.name AND p.in_doubt_since IS NOT NULL)
              OR EXISTS (SELECT 1 FROM parked k WHERE k.destination = v_money.name AND k.in_doubt_since IS NOT NULL) THEN 'in_doubt'
            WHEN EXISTS (SELECT 1 FROM lease l WHERE l.destination = v_money.name) THEN 'leased' END;
        IF v_why IS NOT NULL THEN
            RAISE EXCEPTION '%', v_money.name USING ERRCODE = 'RDA01', DETAIL = v_why;
        END IF;
    END LOOP;
END $body$;

CREATE OR REPLACE FUNCTION redrive.declared_destinations(
    p_destinations json
) RETURNS TABLE (
    name text, has_record boolean, money boolean, in_doubt text, address text, effects_within_seconds float8,
    rate_per_second float8, concurrency_limit integer
) LANGUAGE sql IMMUTABLE AS $body$
    SELECT * FROM json_to_recordset(p_destinations) AS d(
        name text, has_record boolean, money boolean, in_doubt text, address text, effects_within_seconds float8,
        rate_per_second float8, concurrency_limit integer)
$body$;

-- Returns what the database says about the destinations of this relay. A relay whose row is gone registers again.
-- p_listener: whether it hears the doorbell (listening, reconnecting, deaf or off). pause_seconds: how much longer the pause
-- lasts, NULL = until an operator resumes it.
CREATE OR REPLACE FUNCTION redrive.heartbeat_1(
    p_worker uuid, p_listener text, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (
    name text, paused boolean, pause_reason text, paused_by text, paused_at timestamptz, pause_seconds float8, breaker text,
    breaker_opened_at timestamptz
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
#variable_conflict use_column
DECLARE v_now          timestamptz := coalesce(p_now, clock_timestamp());
        v_destinations text[];
BEGIN
    PERFORM redrive.watch_epoch(v_now);
    UPDATE relay r SET seen_at = v_now, listener = p_listener WHERE r.worker = p_worker
    RETURNING r.destinations INTO v_destinations;
    RETURN QUERY
    SELECT d.name, p.paused, CASE WHEN p.paused THEN d.pause_reason END, CASE WHEN p.paused THEN d.paused_by END,
           CASE WHEN p.paused THEN d.paused_at END,
           CASE WHEN p.paused THEN extract(epoch FROM d.paused_until - v_now)::float8 END,
           redrive.breaker_state(d.breaker, d.breaker_until, v_now), d.breaker_opened_at
      FROM destination d
     CROSS JOIN LATERAL (SELECT redrive.is_paused(d.name, v_now) AS paused) p
     WHERE d.name = ANY (v_destinations);
END $body$;

CREATE OR REPLACE FUNCTION redrive.deregister_1(p_worker uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
BEGIN
    DELETE FROM relay r WHERE r.worker = p_worker;
    DELETE FROM doorbell b WHERE b.worker = p_worker;
END $body$;

-- forget_relays: deletes rows of relays and workers that were last seen so many seconds ago.
CREATE OR REPLACE FUNCTION redrive.forget_relays_1(p_after_seconds float8, p_now timestamptz DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_count integer;
BEGIN
    DELETE FROM relay r WHERE r.seen_at < v_now - make_interval(secs => p_after_seconds);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    PERFORM redrive.forget_workers(p_after_seconds, v_now);
    PERFORM redrive.forget_limit_keys(v_now);
    DELETE FROM doorbell b WHERE b.idle_until < v_now - make_interval(secs => p_after_seconds);
    RETURN v_count;
END $body$;
