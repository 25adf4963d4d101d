-- begin_duty: true when the duty is due and no other relay runs it (G-17). The row's update is the election: a second
-- caller waits for the first one's short transaction and then sees that it is no longer due. A holder that died is
-- replaced after p_hold_seconds; every duty is safe to run twice. What was begun or ended in the future was dated by a clock that has been
-- set back since: it counts as long ago (G-33).
CREATE OR REPLACE FUNCTION redrive.begin_duty_1(
    p_name text, p_worker uuid, p_every_seconds float8, p_hold_seconds float8, p_now timestamptz DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    INSERT INTO duty (name, every_seconds) VALUES (p_name, p_every_seconds) ON CONFLICT DO NOTHING;
    UPDATE duty d
       SET holder = p_worker, holder_until = v_now + make_interval(secs => p_hold_seconds), started_at = v_now,
           every_seconds = p_every_seconds
     WHERE d.name = p_name
       AND (d.holder IS NULL OR d.holder_until < v_now OR d.started_at > v_now + redrive.clock_tolerance())
       AND (d.finished_at IS NULL OR d.finished_at + make_interval(secs => p_every_seconds) <= v_now
            OR d.finished_at > v_now + redrive.clock_tolerance());
    RETURN FOUND;
END $body$;

CREATE OR REPLACE FUNCTION redrive.end_duty_1(p_name text, p_worker uuid, p_result text, p_now timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
BEGIN
    UPDATE duty d SET holder = NULL, holder_until = NULL, finished_at = coalesce(p_now, clock_timestamp()), result = p_result
     WHERE d.name = p_name AND d.holder = p_worker;
END $body$;

-- hold_duty: true while a duty is this worker's: one that is not over after a run but kept, such as reading gauges. The relay that holds it
-- says so again and again; one that was not heard of for p_hold_seconds is replaced, one that ends lets go (end_duty).
CREATE OR REPLACE FUNCTION redrive.hold_duty_1(
    p_name text, p_worker uuid, p_every_seconds float8, p_hold_seconds float8, p_now timestamptz DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    INSERT INTO duty (name, every_seconds) VALUES (p_name, p_every_seconds) ON CONFLICT DO NOTHING;
    UPDATE duty d
       SET holder = p_worker, holder_until = v_now + make_interval(secs => p_hold_seconds), started_at = v_now,
           finished_at = v_now, every_seconds = p_every_seconds, result = 'held'
     WHERE d.name = p_name AND (d.holder IS NULL OR d.holder = p_worker OR d.holder_until < v_now
                                OR d.started_at > v_now + redrive.clock_tolerance());
    RETURN FOUND;
END $body$;
