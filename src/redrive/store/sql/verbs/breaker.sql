-- The circuit breaker of a destination, over all relays (G-25). Relays count what happens to them; what follows from it is
-- decided here, behind the lock of the destination row.
--   closed     messages flow
--   open       nothing is claimed until breaker_until: a cool-off, twice as long after each trip in a row
--   half_open  one message is on its way as a probe; if its claim ends without a word, another one may go
--   ramping    the probe was answered: 1, 2, 4 … messages in flight, twice as many every second, for ten seconds
-- A row that is open and past its time waits for its probe; one that ramps and is past its time is closed: the next claim that
-- takes something writes that down.
-- A report names the time at which its message was claimed. A report about a claim from before the last opening is ignored.

CREATE OR REPLACE FUNCTION redrive.breaker_state(p_breaker text, p_until timestamptz, p_now timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $body$
    SELECT CASE WHEN p_until > p_now THEN p_breaker
                WHEN p_breaker = 'open' THEN 'half_open'
                WHEN p_breaker = 'ramping' THEN 'closed'
                ELSE p_breaker END
$body$;

-- open_breaker: a relay found the destination down, often enough, or with its probe. True when it opened now.
-- p_code: what it was answered. The cool-off is p_cool_off_seconds, doubled with every trip since it was last closed.
-- A claim that ran beside the opening did not see it and may be dated after it. A report about such a claim dates the opening to now, with
-- no trip and no longer cool-off: relays hand back what they claimed before, instead of sending all of it as if it had been let out.
-- Locks: the destination row.
CREATE OR REPLACE FUNCTION redrive.open_breaker_1(
    p_destination text, p_claimed_at timestamptz, p_code text, p_cool_off_seconds float8, p_cool_off_max_seconds float8,
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (opened boolean, opened_at timestamptz, open_seconds float8) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_opened boolean;
BEGIN
    INSERT INTO destination (name) VALUES (p_destination) ON CONFLICT DO NOTHING;
    UPDATE destination d
       SET breaker = 'open', breaker_changed_at = v_now, breaker_opened_at = v_now, breaker_code = p_code,
           breaker_trips = redrive.breaker_trips(d, v_now) + 1,
           breaker_until = v_now + make_interval(secs => least(
               p_cool_off_seconds * power(2, least(redrive.breaker_trips(d, v_now), 30)), p_cool_off_max_seconds))
     WHERE d.name = p_destination AND d.breaker <> 'open'
       AND (d.breaker_opened_at IS NULL OR p_claimed_at > d.breaker_opened_at);
    v_opened := FOUND;
    IF NOT v_opened THEN
        UPDATE destination d SET breaker_opened_at = v_now
         WHERE d.name = p_destination AND d.breaker = 'open' AND p_claimed_at > d.breaker_opened_at;
    END IF;
    RETURN QUERY SELECT v_opened, d.breaker_opened_at,
                        greatest(extract(epoch FROM d.breaker_until - v_now)::float8, 0)
                   FROM destination d WHERE d.name = p_destination;
END $body$;

-- breaker_trips: how often it opened since it was last closed.
CREATE OR REPLACE FUNCTION redrive.breaker_trips(d redrive.destination, p_now timestamptz) RETURNS integer
LANGUAGE sql IMMUTABLE AS $body$
    SELECT CASE WHEN redrive.breaker_state(d.breaker, d.breaker_until, p_now) = 'closed' THEN 0 ELSE d.breaker_trips END
$body$;

-- close_breaker: the probe was answered. The ramp begins, at the end of which the breaker is closed. True when it began now.
-- Locks: the destination row.
CREATE OR REPLACE FUNCTION redrive.close_breaker_1(p_destination text, p_claimed_at timestamptz, p_now timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    UPDATE destination d
       SET breaker = 'ramping', breaker_changed_at = v_now, breaker_until = v_now + redrive.ramp()
     WHERE d.name = p_destination AND d.breaker = 'half_open' AND p_claimed_at > d.breaker_opened_at;
    RETURN FOUND;
END $body$;

CREATE OR REPLACE FUNCTION redrive.ramp() RETURNS interval
LANGUAGE sql IMMUTABLE AS $body$
    SELECT interval '10 seconds'
$body$;

-- pause_until: the destination asked for a rest (Retry-After). Nothing is claimed for it until then, and then it ramps. It
-- lengthens such a pause, never shortens it, and leaves a person's alone. Returns for how many seconds it is paused from now
-- on; NULL where a person has paused it.
-- Locks: the destination row.
CREATE OR REPLACE FUNCTION redrive.pause_until_1(
    p_destination text, p_actor text, p_seconds float8, p_now timestamptz DEFAULT NULL
) RETURNS float8 LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_until timestamptz := v_now + make_interval(secs => greatest(p_seconds, 0));
BEGIN
    INSERT INTO destination (name) VALUES (p_destination) ON CONFLICT DO NOTHING;
    UPDATE destination d
       SET paused_at = CASE WHEN d.paused_until > v_now THEN d.paused_at ELSE v_now END,
           paused_until = v_until, paused_by = p_actor, pause_reason = 'retry_after'
     WHERE d.name = p_destination
       AND (d.paused_at IS NULL OR d.paused_until <= v_now OR (d.pause_reason = 'retry_after' AND d.paused_until < v_until));
    IF FOUND THEN
        UPDATE destination d
           SET breaker = 'ramping', breaker_changed_at = v_until, breaker_until = v_until + redrive.ramp(),
               breaker_opened_at = v_now, breaker_trips = redrive.breaker_trips(d, v_now)
         WHERE d.name = p_destination AND d.breaker <> 'open';
    END IF;
    RETURN (SELECT extract(epoch FROM d.paused_until - v_now)::float8 FROM destination d WHERE d.name = p_destination);
END $body$;

-- half_open: let one message through although its destination is held back by its breaker or by a Retry-After: an operator's
-- test. Answers 'done'; 'probing' when one is on its way already; 'flows' when nothing holds it back; 'paused' when a person, or
-- a relay for a person, has paused it; 'empty' when nothing is due; 'not_found'.
-- Locks: the destination row, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.half_open_1(p_destination text, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp()); d destination;
BEGIN
    SELECT * INTO d FROM destination x WHERE x.name = p_destination FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF d.paused_at IS NOT NULL AND (d.paused_until IS NULL OR (d.paused_until > v_now AND d.pause_reason <> 'retry_after')) THEN
        RETURN 'paused';
    ELSIF d.breaker = 'half_open' AND EXISTS (SELECT 1 FROM lease l WHERE l.id = d.breaker_probe) THEN
        RETURN 'probing';
    ELSIF redrive.breaker_state(d.breaker, d.breaker_until, v_now) IN ('closed', 'ramping')
          AND (d.paused_until IS NULL OR d.paused_until <= v_now) THEN
        RETURN 'flows';
    ELSIF NOT EXISTS (SELECT 1 FROM pending p WHERE p.destination = p_destination AND p.due_at <= v_now) THEN
        RETURN 'empty';
    END IF;
    UPDATE destination x
       SET breaker = 'open', breaker_changed_at = v_now, breaker_until = v_now, paused_at = NULL, paused_until = NULL,
           paused_by = NULL, pause_reason = NULL
     WHERE x.name = p_destination;
    PERFORM pg_notify('outbox_pending', 'new_work');
    PERFORM redrive.audit(p_actor, 'half_open', p_destination, p_reason, json_build_object('breaker', d.breaker), NULL, v_now);
    RETURN 'done';
END $body$;
