-- The doorbell (G-08). A NOTIFY makes every commit of the database that has one wait for every other: at 32
-- producers it costs four fifths of their throughput. So one is sent only while a relay sleeps that would get up for it.

-- announce_idle: from now on this relay has nothing to do for these destinations and wants to be rung, for so many seconds; for none
-- of them, it is awake. It says so again before the time is over; one that died is not rung any more when it is.
-- Locks: nothing that other transactions wait for. Relies on: the primary key of doorbell.
CREATE OR REPLACE FUNCTION redrive.announce_idle_1(
    p_worker uuid, p_destinations text[], p_seconds float8, p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    DELETE FROM doorbell b WHERE b.worker = p_worker AND b.idle_until > v_now;
    IF cardinality(p_destinations) > 0 THEN
        INSERT INTO doorbell (idle_until, worker, destinations)
        VALUES (v_now + make_interval(secs => p_seconds), p_worker, p_destinations);
    END IF;
END $body$;

-- ring: the last step of every verb that makes messages of these destinations due now (NULL = of any). Heard when the
-- caller's transaction commits. Missed by a relay that lay down after the caller looked: its poll finds the message.
-- Cheap beside a transaction that keeps dead rows alive: they all lie before p_now in the index, and it is read after it.
-- A transaction with a NOTIFY cannot be prepared: SET redrive.ring = off for one that shall be.
CREATE OR REPLACE FUNCTION redrive.ring(p_destinations text[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $body$
BEGIN
    IF EXISTS (SELECT 1 FROM redrive.doorbell b
                WHERE b.idle_until > p_now AND (p_destinations IS NULL OR b.destinations && p_destinations))
       AND current_setting('redrive.ring', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_notify('outbox_pending', 'new_work');
    END IF;
END $body$;
