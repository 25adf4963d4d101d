-- What the limits of destinations leave of a claim's rooms (G-25): global concurrency, rate over all relays, breaker.
-- A destination with limits is counted behind the lock of its row, in a statement of its own after the lock: two claims never
-- see the same room. A claim that finds the row locked has no room now, and its relay claims again in a moment. A destination without limits
-- and with a closed breaker costs a claim one look at an index in which it is not.
-- Everything here is called by verbs; nothing is called from outside.

-- limited: those of these destinations that have limits, or a breaker that is not closed; NULL where none has.
-- Relies on: destination_watched.
CREATE OR REPLACE FUNCTION redrive.limited(p_destinations text[]) RETURNS text[]
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN (SELECT array_agg(d.name) FROM destination d WHERE d.limited AND d.name = ANY (p_destinations));
END $body$;

-- rooms_within_limits: the rooms of a claim, those of limited destinations cut down to what may go out now. The levels of a
-- destination share what it may have by turns, 6:3:1, and what one has no use for goes to the others. held_back: destinations
-- for which more is due than may go.
-- Locks: the limited destinations that have something due, with SKIP LOCKED.
CREATE OR REPLACE FUNCTION redrive.rooms_within_limits(
    p_destinations text[], p_levels smallint[], p_rooms integer[], p_since timestamptz[], p_limited text[], p_now timestamptz,
    OUT rooms integer[], OUT held_back text[]
) LANGUAGE plpgsql AS $body$
DECLARE v_due    text[];
        v_locked text[];
BEGIN
    v_due := ARRAY(
        SELECT DISTINCT r.destination
          FROM unnest(p_destinations, p_levels, p_rooms, p_since) AS r(destination, level, room, since)
         WHERE r.destination IN (SELECT unnest(p_limited)) AND r.room > 0
           AND ((SELECT true FROM pending p
                  WHERE p.destination = r.destination AND p.level = r.level AND p.lane IS NULL AND NOT p.suspect
                    AND p.due_at BETWEEN coalesce(r.since, '-infinity') AND p_now
                  ORDER BY p.due_at, p.id LIMIT 1) IS NOT NULL
                OR (SELECT true FROM lane_wake w
                     WHERE w.destination = r.destination AND w.level = r.level
                       AND w.due_at BETWEEN coalesce(r.since, '-infinity') AND p_now
                     ORDER BY w.due_at, w.lane LIMIT 1) IS NOT NULL));
    IF v_due = '{}' THEN
        rooms := redrive.rooms_but_of(p_limited, p_destinations, p_rooms);
        RETURN;
    END IF;
    v_locked := redrive.lock_destinations(v_due);
    WITH asked AS MATERIALIZED (
        SELECT r.*
          FROM unnest(p_destinations, p_levels, p_rooms, p_since)
               WITH ORDINALITY AS r(destination, level, room, since, n)
    ), granted AS MATERIALIZED (
        SELECT d.name, redrive.allowed(d, p_now) AS allowed,
               coalesce((SELECT a.turns FROM allowance a WHERE a.destination = d.name), 0) AS turns
          FROM destination d WHERE d.name = ANY (v_locked)
    ), open AS MATERIALIZED (
        SELECT r.*, o.turns, least(o.allowed, sum(r.room) OVER (PARTITION BY r.destination))::integer AS allowed
          FROM asked r
          JOIN granted o ON o.name = r.destination
         WHERE r.room > 0
    ), ranked AS MATERIALIZED (
        SELECT o.n, o.destination, o.allowed,
               row_number() OVER (PARTITION BY o.destination
                                  ORDER BY k > redrive.turns_of(o.level, o.turns, o.allowed),
                                           k / redrive.turns_of(o.level, 0, 10)::float8, o.level) AS rank
          FROM open o
         CROSS JOIN LATERAL generate_series(1, redrive.due(o.destination, o.level, least(o.room, o.allowed + 1), o.since,
                                                        p_now)) AS k
    ), given AS (
        SELECT g.n, sum(g.room)::integer AS room
          FROM (SELECT r.n, CASE WHEN r.destination IN (SELECT unnest(p_limited)) THEN 0 ELSE r.room END AS room FROM asked r
                UNION ALL
                SELECT r.n, 1 FROM ranked r WHERE r.rank <= r.allowed) g
         GROUP BY g.n
    )
    SELECT array_agg(g.room ORDER BY g.n),
           ARRAY(SELECT DISTINCT r.destination FROM ranked r WHERE r.rank > r.allowed
                 UNION
                 (SELECT unnest(v_due) EXCEPT SELECT unnest(v_locked)))
      INTO rooms, held_back FROM given g;
END $body$;

CREATE OR REPLACE FUNCTION redrive.lock_destinations(p_names text[]) RETURNS text[]
LANGUAGE plpgsql AS $body$
BEGIN
    RETURN ARRAY(SELECT d.name FROM destination d WHERE d.name = ANY (p_names) ORDER BY d.name FOR UPDATE SKIP LOCKED);
END $body$;

-- due: how many messages and lanes of one destination and level are due, counted up to a bound.
-- Relies on: pending_due, lane_wake_due.
CREATE OR REPLACE FUNCTION redrive.due(
    p_destination text, p_level smallint, p_bound integer, p_since timestamptz, p_now timestamptz
) RETURNS integer LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN (SELECT count(*)
              FROM ((SELECT 1 FROM pending p
                      WHERE p.destination = p_destination AND p.level = p_level
                        AND p.lane IS NULL AND NOT p.suspect
                        AND p.due_at BETWEEN coalesce(p_since, '-infinity') AND p_now
                      ORDER BY p.due_at, p.id LIMIT p_bound)
                    UNION ALL
                    (SELECT 1 FROM lane_wake w
                      WHERE w.destination = p_destination AND w.level = p_level
                        AND w.due_at BETWEEN coalesce(p_since, '-infinity') AND p_now
                      ORDER BY w.due_at, w.lane LIMIT p_bound)
                    LIMIT p_bound) one);
END $body$;

-- turns_of: how many of the next p_count turns after the first p_turns belong to a level; of ten, six, three and one.
CREATE OR REPLACE FUNCTION redrive.turns_of(p_level smallint, p_turns bigint, p_count bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $body$
DECLARE c_turns CONSTANT smallint[] := '{0, 1, 0, 0, 1, 0, 2, 0, 1, 0}';
BEGIN
    RETURN p_count / 10 * (ARRAY[6, 3, 1])[p_level + 1]
         + (SELECT count(*) FROM generate_series(p_turns, p_turns + p_count % 10 - 1) AS t WHERE c_turns[t % 10 + 1] = p_level);
END $body$;

-- allowed: how many more messages of one destination may go out now. To be believed only where its row was locked in an
-- earlier statement. While its breaker is half open one probe, until its claim has ended; while it ramps, twice as many in
-- flight every second.
-- Relies on: lease's primary key, lease_counted.
CREATE OR REPLACE FUNCTION redrive.allowed(d redrive.destination, p_now timestamptz) RETURNS integer
LANGUAGE plpgsql STABLE AS $body$
DECLARE v_allowed float8 := 1e6;
BEGIN
    CASE redrive.breaker_state(d.breaker, d.breaker_until, p_now)
    WHEN 'closed' THEN
        NULL;
    WHEN 'open' THEN
        RETURN 0;
    WHEN 'half_open' THEN
        v_allowed := CASE WHEN d.breaker = 'half_open' AND EXISTS (SELECT 1 FROM lease l WHERE l.id = d.breaker_probe)
                          THEN 0 ELSE 1 END;
    WHEN 'ramping' THEN
        v_allowed := power(2, floor(extract(epoch FROM p_now - d.breaker_changed_at)::float8))
                   - (SELECT count(*) FROM lease l
                       WHERE l.counted AND l.destination = d.name AND l.claimed_at > d.breaker_opened_at);
    END CASE;
    IF d.concurrency_limit IS NOT NULL THEN
        v_allowed := least(v_allowed, d.concurrency_limit
                                    - (SELECT count(*) FROM lease l WHERE l.counted AND l.destination = d.name));
    END IF;
    IF d.rate_per_second IS NOT NULL THEN
        v_allowed := least(v_allowed, redrive.rate_room(d.name, d.rate_per_second, p_now));
    END IF;
    RETURN greatest(floor(v_allowed), 0);
END $body$;

-- rate_room: how many messages a rate lets out now: as many as it has saved up for, but in any second no more than the rate, rounded
-- up. The saving alone would let out twice the rate in one second: what was saved up at its beginning, and what is earned in it.
-- What a crash of the server made it forget was let out at most a moment before the server was ready again: it waits for that second.
CREATE OR REPLACE FUNCTION redrive.rate_room(p_destination text, p_rate float8, p_now timestamptz) RETURNS float8
LANGUAGE plpgsql STABLE AS $body$
DECLARE v_recent bigint;
BEGIN
    SELECT sum(c.charged) FILTER (WHERE redrive.rate_at(a.rate_at, p_now) >= a.rate_at
                                    AND c.at > redrive.rate_at(a.rate_at, p_now) - redrive.rate_window())
      INTO v_recent
      FROM allowance a
      LEFT JOIN LATERAL unnest(a.charged_at, a.charged) AS c(at, charged) ON true
     WHERE a.destination = p_destination
     GROUP BY a.destination;
    IF NOT FOUND AND p_now - redrive.server_ready_at() BETWEEN interval '0' AND redrive.rate_window() THEN
        RETURN 0;
    END IF;
    RETURN least(redrive.rate_saved(p_destination, p_rate, p_now), ceil(p_rate) - coalesce(v_recent, 0));
END $body$;

-- rate_saved: how many messages a rate has saved up for, at most one second's worth, and one at least. A claim that began
-- before the last one and got the lock after it has saved up nothing more; a clock that was set back by more than that begins
-- anew.
CREATE OR REPLACE FUNCTION redrive.rate_saved(p_destination text, p_rate float8, p_now timestamptz) RETURNS float8
LANGUAGE plpgsql STABLE AS $body$
DECLARE v_saved float8 := (SELECT a.rate_room + extract(epoch FROM redrive.rate_at(a.rate_at, p_now) - a.rate_at)::float8 * p_rate
                             FROM allowance a WHERE a.destination = p_destination AND redrive.rate_at(a.rate_at, p_now) >= a.rate_at);
BEGIN
    RETURN least(greatest(p_rate, 1), v_saved);
END $body$;

CREATE OR REPLACE FUNCTION redrive.rate_at(p_rate_at timestamptz, p_now timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $body$
    SELECT CASE WHEN p_now < p_rate_at AND p_now > p_rate_at - interval '10 seconds' THEN p_rate_at ELSE p_now END
$body$;

-- rate_window: a second, and a little: a message is sent some milliseconds after it was claimed, and not all equally late.
CREATE OR REPLACE FUNCTION redrive.rate_window() RETURNS interval
LANGUAGE sql IMMUTABLE AS $body$
    SELECT interval '1025 milliseconds'
$body$;

-- rate_charges: what a rate let out within the last second, with one charge more. Charges that are less than 20 ms apart become one, with
-- the time of the last, so that a rate of any height has about a hundred of them; none is counted for a shorter time by that.
CREATE OR REPLACE FUNCTION redrive.rate_charges(
    p_charged_at timestamptz[], p_charged integer[], p_taken integer, p_at timestamptz, OUT charged_at timestamptz[],
    OUT charged integer[]
) LANGUAGE plpgsql IMMUTABLE AS $body$
DECLARE v_last integer;
BEGIN
    SELECT coalesce(array_agg(c.at ORDER BY c.n), '{}'), coalesce(array_agg(c.charged ORDER BY c.n), '{}') INTO charged_at, charged
      FROM unnest(p_charged_at, p_charged) WITH ORDINALITY AS c(at, charged, n)
     WHERE c.at > p_at - redrive.rate_window() AND c.at <= p_at;
    v_last := cardinality(charged_at);
    IF v_last > 1 AND charged_at[v_last - 1] > p_at - interval '20 milliseconds' THEN
        charged_at[v_last] := p_at;
        charged[v_last] := charged[v_last] + p_taken;
    ELSE
        charged_at := charged_at || p_at;
        charged := charged || p_taken;
    END IF;
END $body$;

-- charge: what a claim is about to take of limited destinations, which it has locked. What has expired is closed, and costs
-- nothing. A breaker that lets its probe out is half open from here on; one whose ramp is over is closed. Returns the probes.
-- p_charged_at: when it is taken, by the clock; a claim that had to wait for a processor began some time before.
CREATE OR REPLACE FUNCTION redrive.charge(p_rows tid[], p_limited text[], p_now timestamptz, p_charged_at timestamptz)
RETURNS uuid[] LANGUAGE plpgsql AS $body$
DECLARE v        record;
        v_probes uuid[];
BEGIN
    FOR v IN
        SELECT d.name, d.rate_per_second, redrive.breaker_state(d.breaker, d.breaker_until, p_now) AS breaker,
               d.breaker AS breaker_before, t.taken, t.first
          FROM (SELECT p.destination, count(*) AS taken, (array_agg(p.id))[1] AS first
                  FROM pending p
                 WHERE p.ctid = ANY (p_rows) AND p.destination = ANY (p_limited)
                   AND NOT redrive.just_ends(p.expires_at, p.in_doubt_since, p.kept_answer, p_now)
                 GROUP BY p.destination) t
         CROSS JOIN LATERAL (SELECT * FROM destination x WHERE x.name = t.destination) d
    LOOP
        INSERT INTO allowance AS a (destination, rate_room, rate_at, turns, charged_at, charged)
        SELECT v.name, coalesce(redrive.rate_saved(v.name, v.rate_per_second, p_charged_at), 0) - v.taken, p_charged_at, v.taken,
               c.charged_at, c.charged
          FROM redrive.rate_charges('{}', '{}', v.taken::integer, p_charged_at) c
        ON CONFLICT (destination) DO UPDATE
            SET rate_room = excluded.rate_room, rate_at = redrive.rate_at(a.rate_at, p_charged_at), turns = a.turns + excluded.turns,
                (charged_at, charged) = (SELECT c.charged_at, c.charged
                                           FROM redrive.rate_charges(a.charged_at, a.charged, v.taken::integer,
                                                                     redrive.rate_at(a.rate_at, p_charged_at)) c);
        IF v.breaker = 'half_open' THEN
            UPDATE destination d SET breaker = 'half_open', breaker_probe = v.first, breaker_changed_at = p_now, breaker_until = NULL
             WHERE d.name = v.name;
            v_probes := v_probes || v.first;
        ELSIF v.breaker = 'closed' AND v.breaker_before <> 'closed' THEN
            UPDATE destination d
               SET breaker = 'closed', breaker_changed_at = d.breaker_until, breaker_until = NULL, breaker_trips = 0
             WHERE d.name = v.name;
        END IF;
    END LOOP;
    RETURN v_probes;
END $body$;

-- just_ends: whether a message that is claimed now is closed as expired instead. In doubt it is looked up first, with an answer
-- kept it is recorded: neither just ends.
CREATE OR REPLACE FUNCTION redrive.just_ends(
    p_expires_at timestamptz, p_in_doubt_since timestamptz, p_kept_answer json, p_now timestamptz
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $body$
    SELECT coalesce(p_expires_at <= p_now, false) AND p_in_doubt_since IS NULL AND p_kept_answer IS NULL
$body$;

-- with_room: of these destinations those that are not limited, and of the limited ones that are named those that have room for
-- one more message. Only where their rows are locked can that be believed.
CREATE OR REPLACE FUNCTION redrive.with_room(p_destinations text[], p_limited text[], p_named text[], p_now timestamptz)
RETURNS text[] LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN ARRAY(SELECT n.name FROM unnest(p_destinations) AS n(name) WHERE n.name <> ALL (p_limited)
                 UNION ALL
                 SELECT d.name FROM destination d WHERE d.name = ANY (p_named) AND redrive.allowed(d, p_now) > 0);
END $body$;
