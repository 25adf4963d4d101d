-- Limit keys (G-31): breaker, rests and pauses of a part of a destination. The transport names the key of a message, so a relay knows
-- it once it has the message in hand, and the claim does not. A relay puts off what it must not send (hand_back_1 with p_seconds),
-- and hears with its heartbeat which keys are not plain. The rules are those of breaker.sql and destination.sql, for a row of `limit_key`.

-- limit_keys: the keys of these destinations that are not plain. pause_seconds, breaker_seconds: how much longer the pause or the
-- present state of the breaker lasts; NULL where it has no end. ramp_seconds: for how long it has
-- been ramping; below 0 where the ramp follows a rest.
-- A reader whose session is limited to one tenant is told of none: a key may name another one's host.
-- Relies on: limit_key's primary key.
CREATE OR REPLACE FUNCTION redrive.limit_keys_1(
    p_destinations text[], p_limit integer, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (
    destination text, key text, paused boolean, pause_reason text, paused_by text, paused_at timestamptz, pause_seconds float8,
    breaker text, breaker_opened_at timestamptz, breaker_seconds float8, ramp_seconds float8, breaker_code text
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    RETURN QUERY
    SELECT k.destination, k.key, s.paused, CASE WHEN s.paused THEN k.pause_reason END, CASE WHEN s.paused THEN k.paused_by END,
           CASE WHEN s.paused THEN k.paused_at END,
           CASE WHEN s.paused THEN extract(epoch FROM k.paused_until - v_now)::float8 END,
           s.breaker, k.breaker_opened_at,
           CASE WHEN k.breaker_until > v_now THEN extract(epoch FROM k.breaker_until - v_now)::float8 END,
           CASE WHEN s.breaker = 'ramping' THEN extract(epoch FROM v_now - k.breaker_changed_at)::float8 END,
           k.breaker_code
      FROM limit_key k
     CROSS JOIN LATERAL (SELECT redrive.key_is_paused(k, v_now) AS paused,
                                redrive.breaker_state(k.breaker, k.breaker_until, v_now) AS breaker) s
     WHERE k.destination = ANY (p_destinations) AND (s.paused OR s.breaker <> 'closed')
       AND coalesce(current_setting('redrive.tenant', true), '') IN ('', '*')
     ORDER BY k.destination, k.key
     LIMIT p_limit;
END $body$;

CREATE OR REPLACE FUNCTION redrive.key_is_paused(k redrive.limit_key, p_now timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $body$
    SELECT k.paused_at IS NOT NULL AND (k.paused_until IS NULL OR k.paused_until > p_now)
$body$;

-- key_trips: how often its breaker opened since it was last closed.
CREATE OR REPLACE FUNCTION redrive.key_trips(k redrive.limit_key, p_now timestamptz) RETURNS integer
LANGUAGE sql IMMUTABLE AS $body$
    SELECT CASE WHEN redrive.breaker_state(k.breaker, k.breaker_until, p_now) = 'closed' THEN 0 ELSE k.breaker_trips END
$body$;

-- pause_key: an operator's act, or a relay's own (reason 'bug'). False where it is paused already. Audited as DESTINATION/KEY.
-- Locks: the row of the key, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.pause_key_1(
    p_destination text, p_key text, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    INSERT INTO limit_key (destination, key) VALUES (p_destination, p_key) ON CONFLICT DO NOTHING;
    UPDATE limit_key k SET paused_at = v_now, paused_until = NULL, paused_by = p_actor, pause_reason = p_reason
     WHERE k.destination = p_destination AND k.key = p_key AND (k.paused_at IS NULL OR k.paused_until IS NOT NULL);
    IF NOT FOUND THEN RETURN false; END IF;
    PERFORM redrive.audit(p_actor, 'pause', p_destination || '/' || p_key, p_reason, NULL, NULL, v_now);
    RETURN true;
END $body$;

-- resume_key: ends a pause or a rest, and brings forward what was put off for it: up to 10,000 messages at once; what is left comes when
-- it is due. False where nothing pauses it.
-- Locks: the row of the key, lanes in id order, pending rows, then the audit chain. Relies on: pending_limit_key.
CREATE OR REPLACE FUNCTION redrive.resume_key_1(
    p_destination text, p_key text, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_before text;
BEGIN
    SELECT k.pause_reason INTO v_before FROM limit_key k
     WHERE k.destination = p_destination AND k.key = p_key AND redrive.key_is_paused(k, v_now) FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE limit_key k SET paused_at = NULL, paused_until = NULL, paused_by = NULL, pause_reason = NULL
     WHERE k.destination = p_destination AND k.key = p_key;
    -- The ramp that was to follow a Retry-After begins now.
    UPDATE limit_key k SET breaker_changed_at = v_now, breaker_until = v_now + redrive.ramp()
     WHERE k.destination = p_destination AND k.key = p_key AND k.breaker = 'ramping' AND k.breaker_changed_at > v_now;
    PERFORM redrive.bring_forward(p_destination, p_key, v_now);
    PERFORM pg_notify('outbox_pending', 'new_work');
    PERFORM redrive.audit(p_actor, 'resume', p_destination || '/' || p_key, p_reason, json_build_object('reason', v_before), NULL,
                          v_now);
    RETURN true;
END $body$;

-- put_off_seconds: for how long claims are put off; where the relay does not say (NULL), for as long as the key is held by what this table
-- says: an hour at a time where it is paused without an end. The row is locked to be read: a resume that is under way has ended, or sees
-- what is put off here and brings it forward.
-- Locks: rows of limit keys, in order, FOR SHARE.
CREATE OR REPLACE FUNCTION redrive.put_off_seconds(p_ids uuid[], p_limit_keys text[], p_seconds float8[], p_now timestamptz)
RETURNS float8[] LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM 1 FROM limit_key k
      WHERE (k.destination, k.key) IN (SELECT l.destination, i.key
                                         FROM unnest(p_ids, p_limit_keys, p_seconds) AS i(id, key, seconds)
                                         JOIN lease l ON l.id = i.id
                                        WHERE i.seconds IS NULL AND i.key IS NOT NULL)
      ORDER BY k.destination, k.key FOR SHARE;
    RETURN ARRAY(
        SELECT coalesce(i.seconds, (
                   SELECT CASE WHEN redrive.key_is_paused(k, p_now)
                               THEN coalesce(extract(epoch FROM k.paused_until - p_now)::float8, 3600)
                               WHEN k.breaker = 'open' AND k.breaker_until > p_now
                               THEN extract(epoch FROM k.breaker_until - p_now)::float8 END
                     FROM limit_key k
                    WHERE k.destination = (SELECT l.destination FROM lease l WHERE l.id = i.id) AND k.key = i.key))
          FROM unnest(p_ids, p_limit_keys, p_seconds) WITH ORDINALITY AS i(id, key, seconds, n)
         ORDER BY i.n);
END $body$;

-- bring_forward: what was put off for a key is due now.
CREATE OR REPLACE FUNCTION redrive.bring_forward(p_destination text, p_key text, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE v_lanes bigint[];
BEGIN
    UPDATE pending p SET due_at = p_now, limit_key = NULL WHERE p.id = ANY (ARRAY(
        SELECT x.id FROM pending x
         WHERE x.destination = p_destination AND x.limit_key = p_key AND x.lane IS NULL AND x.due_at > p_now
         LIMIT 10000 FOR UPDATE SKIP LOCKED));
    v_lanes := ARRAY(SELECT x.lane FROM pending x
                      WHERE x.destination = p_destination AND x.limit_key = p_key AND x.lane IS NOT NULL AND x.due_at > p_now
                      LIMIT 10000);
    v_lanes := redrive.lock_free_lanes(v_lanes);
    IF v_lanes <> '{}' THEN
        UPDATE pending p SET due_at = p_now, limit_key = NULL
         WHERE p.lane = ANY (v_lanes) AND p.destination = p_destination AND p.limit_key = p_key AND p.due_at > p_now;
        PERFORM redrive.wake_lanes(v_lanes, p_now);
    END IF;
END $body$;

-- rest_key: the key asked for a rest (Retry-After), after which it ramps. It lengthens such a pause, never shortens it, and leaves a
-- person's alone. Returns for how many seconds it is paused from now on; NULL where a person has paused it.
-- Locks: the row of the key.
CREATE OR REPLACE FUNCTION redrive.rest_key_1(
    p_destination text, p_key text, p_actor text, p_seconds float8, p_now timestamptz DEFAULT NULL
) RETURNS float8 LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_until timestamptz := v_now + make_interval(secs => greatest(p_seconds, 0));
BEGIN
    INSERT INTO limit_key (destination, key) VALUES (p_destination, p_key) ON CONFLICT DO NOTHING;
    UPDATE limit_key k
       SET paused_at = CASE WHEN k.paused_until > v_now THEN k.paused_at ELSE v_now END,
           paused_until = v_until, paused_by = p_actor, pause_reason = 'retry_after'
     WHERE k.destination = p_destination AND k.key = p_key
       AND (k.paused_at IS NULL OR k.paused_until <= v_now OR (k.pause_reason = 'retry_after' AND k.paused_until < v_until));
    IF FOUND THEN
        UPDATE limit_key k
           SET breaker = 'ramping', breaker_changed_at = v_until, breaker_until = v_until + redrive.ramp(),
               breaker_opened_at = v_now, breaker_trips = redrive.key_trips(k, v_now)
         WHERE k.destination = p_destination AND k.key = p_key AND k.breaker <> 'open';
    END IF;
    RETURN (SELECT extract(epoch FROM k.paused_until - v_now)::float8 FROM limit_key k
             WHERE k.destination = p_destination AND k.key = p_key);
END $body$;

-- open_key: a relay found the key down, often enough, or with its probe; as open_breaker_1.
-- Locks: the row of the key.
CREATE OR REPLACE FUNCTION redrive.open_key_1(
    p_destination text, p_key text, p_claimed_at timestamptz, p_code text, p_cool_off_seconds float8,
    p_cool_off_max_seconds float8, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (opened boolean, opened_at timestamptz, open_seconds float8) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_opened boolean;
BEGIN
    INSERT INTO limit_key (destination, key) VALUES (p_destination, p_key) ON CONFLICT DO NOTHING;
    UPDATE limit_key k
       SET breaker = 'open', breaker_changed_at = v_now, breaker_opened_at = v_now, breaker_code = p_code,
           breaker_trips = redrive.key_trips(k, v_now) + 1,
           breaker_until = v_now + make_interval(secs => least(
               p_cool_off_seconds * power(2, least(redrive.key_trips(k, v_now), 30)), p_cool_off_max_seconds))
     WHERE k.destination = p_destination AND k.key = p_key AND k.breaker <> 'open'
       AND (k.breaker_opened_at IS NULL OR p_claimed_at > k.breaker_opened_at);
    v_opened := FOUND;
    RETURN QUERY SELECT v_opened, k.breaker_opened_at, greatest(extract(epoch FROM k.breaker_until - v_now)::float8, 0)
                   FROM limit_key k WHERE k.destination = p_destination AND k.key = p_key;
END $body$;

-- probe_key: whether this message may go as the probe of a key whose breaker was open: one at a time, until its claim has ended.
-- Answers 'go' (it is the probe), 'flows' (the key needs none: no row, closed, or ramping) or 'wait'.
-- Locks: the row of the key. Relies on: lease's primary key.
CREATE OR REPLACE FUNCTION redrive.probe_key_1(p_destination text, p_key text, p_id uuid, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp()); k limit_key;
BEGIN
    SELECT * INTO k FROM limit_key x WHERE x.destination = p_destination AND x.key = p_key FOR UPDATE;
    IF k.key IS NULL OR redrive.breaker_state(k.breaker, k.breaker_until, v_now) IN ('closed', 'ramping') THEN
        RETURN 'flows';
    ELSIF redrive.key_is_paused(k, v_now) OR redrive.breaker_state(k.breaker, k.breaker_until, v_now) = 'open'
          OR (k.breaker = 'half_open' AND k.breaker_probe <> p_id
              AND EXISTS (SELECT 1 FROM lease l WHERE l.id = k.breaker_probe)) THEN
        RETURN 'wait';
    END IF;
    UPDATE limit_key x SET breaker = 'half_open', breaker_probe = p_id, breaker_changed_at = v_now, breaker_until = NULL
     WHERE x.destination = p_destination AND x.key = p_key;
    RETURN 'go';
END $body$;

-- close_key: the probe was answered: the ramp begins. True when it began now.
-- Locks: the row of the key.
CREATE OR REPLACE FUNCTION redrive.close_key_1(
    p_destination text, p_key text, p_claimed_at timestamptz, p_now timestamptz DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    UPDATE limit_key k SET breaker = 'ramping', breaker_changed_at = v_now, breaker_until = v_now + redrive.ramp()
     WHERE k.destination = p_destination AND k.key = p_key AND k.breaker = 'half_open' AND p_claimed_at > k.breaker_opened_at;
    RETURN FOUND;
END $body$;

-- book_key: the next p_count turns of a key of a destination with a rate, over all relays: the seconds from now to the first of them; the
-- others follow one by one, 1/p_rate apart. p_most_seconds: none that would begin later than this is booked; booked says how many were.
-- Locks: the row of the key in `limit_key_rate`.
CREATE OR REPLACE FUNCTION redrive.book_key_1(
    p_destination text, p_key text, p_count integer, p_rate float8, p_most_seconds float8, p_now timestamptz DEFAULT NULL,
    OUT seconds float8, OUT booked integer
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now  timestamptz := coalesce(p_now, clock_timestamp());
        v_next timestamptz;
BEGIN
    INSERT INTO limit_key_rate (destination, key, next_at) VALUES (p_destination, p_key, v_now) ON CONFLICT DO NOTHING;
    SELECT r.next_at INTO v_next FROM limit_key_rate r WHERE r.destination = p_destination AND r.key = p_key FOR UPDATE;
    v_next := greatest(v_next, v_now);
    seconds := extract(epoch FROM v_next - v_now)::float8;
    booked := least(p_count, greatest(floor((p_most_seconds - seconds) * p_rate + 1e-6) + 1, 0));
    UPDATE limit_key_rate r SET next_at = v_next + make_interval(secs => booked / p_rate)
     WHERE r.destination = p_destination AND r.key = p_key AND booked > 0;
END $body$;

-- forget_limit_keys: rows that have said nothing for a day; called by forget_relays_1.
CREATE OR REPLACE FUNCTION redrive.forget_limit_keys(p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    DELETE FROM limit_key k
     WHERE NOT redrive.key_is_paused(k, p_now - interval '1 day')
       AND redrive.breaker_state(k.breaker, k.breaker_until, p_now - interval '1 day') = 'closed';
    DELETE FROM limit_key_rate r WHERE r.next_at < p_now - interval '1 day';
END $body$;
