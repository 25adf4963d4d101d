-- pause, resume: whether a destination is claimed for. True when it changed something. An operator's act, or a relay's
-- own (reason 'bug'); both are audited. What a Retry-After paused (`pause_until`) a person may pause or resume.
-- Locks: the destination row, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.pause_1(
    p_destination text, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
AS $body$
DECLARE
    v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    INSERT INTO destination (name) VALUES (p_destination) ON CONFLICT DO NOTHING;
    UPDATE destination d SET paused_at = v_now, paused_until = NULL, paused_by = p_actor, pause_reason = p_reason
     WHERE d.name = p_destination AND (d.paused_at IS NULL OR d.paused_until IS NOT NULL);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM redrive.audit(p_actor, 'pause', p_destination, p_reason, NULL, NULL, v_now);
    RETURN true;
END
$body$;

CREATE OR REPLACE FUNCTION redrive.resume_1(
    p_destination text, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
AS $body$
DECLARE
    v_now    timestamptz := coalesce(p_now, clock_timestamp());
    v_before text;
BEGIN
    SELECT d.pause_reason INTO v_before FROM destination d
     WHERE d.name = p_destination AND d.paused_at IS NOT NULL AND (d.paused_until IS NULL OR d.paused_until > v_now) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE destination d SET paused_at = NULL, paused_until = NULL, paused_by = NULL, pause_reason = NULL
     WHERE d.name = p_destination;
    -- The ramp that was to follow a Retry-After begins now.
    UPDATE destination d SET breaker_changed_at = v_now, breaker_until = v_now + redrive.ramp()
     WHERE d.name = p_destination AND d.breaker = 'ramping' AND d.breaker_changed_at > v_now;
    PERFORM pg_notify('outbox_pending', 'new_work');  -- in any case: no relay sleeps for want of work that was paused
    PERFORM redrive.audit(p_actor, 'resume', p_destination, p_reason, json_build_object('reason', v_before), NULL, v_now);
    RETURN true;
END
$body$;
