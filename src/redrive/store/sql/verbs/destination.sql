-- pause, resume: whether a destination is claimed for. An operator's act, or a relay's
-- own (reason 'bug'); both are audited. What a Retry-After paused (`pause_until`) a person may pause or resume.
-- Locks: the destination row, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.pause_1(p_destination text, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    INSERT INTO destination (name) VALUES (p_destination) ON CONFLICT DO NOTHING;
    UPDATE destination d SET paused_at = v_now, paused_until = NULL, paused_by = p_actor, pause_reason = p_reason
     WHERE d.name = p_destination AND (d.paused_at IS NULL OR d.paused_until IS NOT NULL);
    IF NOT FOUND THEN RETURN false; END IF;
    PERFORM redrive.audit(p_actor, 'pause', p_destination, p_reason, NULL, NULL, v_now);
    RETURN true;
END $body$;

-- resume_1: 'done', 'not_paused', 'second_person' (noted; another person has to ask too) or 'approver' (parked.sql). A destination
-- that is paused for 'epoch' moves money: two people resume it (P-10). What waits there and can be looked up is looked up first.
-- Locks: the destination row, then as put_in_doubt does where it was paused for 'epoch', then the audit chain.
CREATE OR REPLACE FUNCTION redrive.resume_1(p_destination text, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_paused record;
        v_second text;
BEGIN
    SELECT d.pause_reason, d.in_doubt, d.paused_at INTO v_paused FROM destination d
     WHERE d.name = p_destination AND d.paused_at IS NOT NULL AND (d.paused_until IS NULL OR d.paused_until > v_now) FOR UPDATE;
    IF NOT FOUND THEN RETURN 'not_paused'; END IF;
    IF v_paused.pause_reason = 'epoch' THEN
        v_second := redrive.second_person(p_destination, 'resume', p_destination, p_actor, p_reason,
                                          json_build_array(extract(epoch FROM v_paused.paused_at)), v_now);
        IF v_second IS NOT NULL THEN
            RETURN v_second;
        ELSIF NOT redrive.doubt_epochs(v_now) THEN
            RAISE EXCEPTION 'Some of what waits for % is held by another transaction; resume it again in a moment.', p_destination
                USING ERRCODE = '55P03';
        ELSIF v_paused.in_doubt = 'lookup' THEN
            PERFORM redrive.put_in_doubt(ARRAY[p_destination], v_now);  -- also what came since: it may be lost work, submitted again
        END IF;
    END IF;
    PERFORM redrive.resume_destination(p_destination, p_actor, p_reason, v_now);
    RETURN 'done';
END $body$;

-- resume_destination: without any question. For functions that have the right to: resume_1, note_comparison.
-- Locks: the destination row, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.resume_destination(p_destination text, p_actor text, p_reason text, p_now timestamptz)
RETURNS void LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_before text := (SELECT d.pause_reason FROM destination d WHERE d.name = p_destination);
BEGIN
    UPDATE destination d SET paused_at = NULL, paused_until = NULL, paused_by = NULL, pause_reason = NULL
     WHERE d.name = p_destination;
    -- The ramp that was to follow a Retry-After begins now.
    UPDATE destination d SET breaker_changed_at = p_now, breaker_until = p_now + redrive.ramp()
     WHERE d.name = p_destination AND d.breaker = 'ramping' AND d.breaker_changed_at > p_now;
    PERFORM pg_notify('outbox_pending', 'new_work');  -- in any case: no relay sleeps for want of work that was paused
    PERFORM redrive.audit(p_actor, 'resume', p_destination, p_reason, json_build_object('reason', v_before), NULL, p_now);
END $body$;
