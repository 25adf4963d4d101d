-- cancel: no further attempt of a message. Linearised: after the answer no new dispatch starts.
-- Answers cancelled, in_flight, in_doubt, parked, already_closed, busy (another transaction holds it for longer than a second), or
-- not_found. p_actor is NULL where the application cancels its own message; an operator's act is also audited, answers 'evidence',
-- 'second_person' or 'approver' as the other acts do (parked.sql), and must name its actor.
-- Locks: the lease row, or the lane and the pending row, whichever there is. Waits at most lock_timeout, then changes nothing.
CREATE OR REPLACE FUNCTION redrive.cancel_1(
    p_id uuid, p_actor text DEFAULT NULL, p_reason text DEFAULT NULL, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET lock_timeout = '1s' SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now    timestamptz := coalesce(p_now, clock_timestamp());
        v_answer text;
BEGIN
    IF p_actor IS NULL AND redrive.is_operator_only() THEN
        RAISE EXCEPTION 'A cancel by % needs an actor and a reason: only an application cancels its own message without them.',
              redrive.invoking_role() USING ERRCODE = '42501';
    END IF;
    -- A claim may move the message from pending to lease between two looks; it cannot do so for ever.
    FOR i IN 1..20 LOOP
        BEGIN
            v_answer := redrive.try_cancel(p_id, p_actor, p_reason, v_now);
            EXIT WHEN v_answer IS NOT NULL;
            RAISE no_data_found;
        EXCEPTION WHEN no_data_found THEN
            NULL;  -- undone, and so the lane let go: the lease comes before the lane, and its settle may wait for us
        END;
    END LOOP;
    IF p_actor IS NOT NULL AND v_answer IN ('cancelled', 'in_flight', 'in_doubt') THEN
        PERFORM redrive.audit(p_actor, 'cancel', p_id::text, p_reason, NULL, json_build_object('answer', v_answer), v_now);
    END IF;
    RETURN coalesce(v_answer, 'busy');
EXCEPTION WHEN lock_not_available THEN
    RETURN 'busy';
END $body$;

-- is_operator_only: whether the role that calls acts for people and for no application. Superusers are members of every role, and the owner
-- may do what it likes.
CREATE OR REPLACE FUNCTION redrive.is_operator_only() RETURNS boolean
LANGUAGE plpgsql STABLE AS $body$
DECLARE v_role name := redrive.invoking_role();
BEGIN
    RETURN v_role <> current_user AND pg_has_role(v_role, 'redrive_operator', 'member')
           AND NOT pg_has_role(v_role, 'redrive_producer', 'member');
END $body$;

-- One look in each place; NULL when the message was on its way between two of them.
CREATE OR REPLACE FUNCTION redrive.try_cancel(p_id uuid, p_actor text, p_reason text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_lane     bigint;
        v_lease    lease;
        v_pending  pending;
        v_answer   text;
BEGIN
    SELECT * INTO v_lease FROM lease l WHERE l.id = p_id FOR UPDATE;
    IF FOUND THEN
        v_answer := redrive.refuse_cancel(p_id, v_lease.destination, v_lease.attempt, v_lease.version, p_actor, p_reason, p_now);
        IF v_answer IS NOT NULL THEN RETURN v_answer; END IF;
        UPDATE lease l SET cancel_requested = true WHERE l.id = p_id;
        RETURN CASE WHEN v_lease.in_doubt_since IS NOT NULL THEN 'in_doubt' ELSE 'in_flight' END;
    END IF;
    SELECT p.lane INTO v_lane FROM pending p WHERE p.id = p_id;
    IF v_lane IS NOT NULL THEN
        PERFORM redrive.lock_lanes(ARRAY[v_lane]);  -- before the message; it may have moved while we waited
    END IF;
    SELECT * INTO v_pending FROM pending p WHERE p.id = p_id FOR UPDATE;
    IF FOUND THEN
        v_answer := redrive.refuse_cancel(p_id, v_pending.destination, v_pending.attempt, v_pending.version, p_actor, p_reason, p_now);
        IF v_answer IS NOT NULL THEN RETURN v_answer; END IF;
        v_answer := redrive.cancel_pending(v_pending, p_actor, p_reason, p_now);
        IF v_lane IS NOT NULL THEN
            PERFORM redrive.wake_lanes(ARRAY[v_lane], p_now);
            PERFORM redrive.wake_leased_lanes(ARRAY[v_lane], p_now);  -- its settle does not wait for us
            -- In the caller's own transaction that look may be as old as its first statement: then a token in any case.
            INSERT INTO lane_wake (destination, level, due_at, lane)
            SELECT v_pending.destination, v_pending.level, p_now, v_lane
             WHERE current_setting('transaction_isolation') <> 'read committed';
        END IF;
        IF v_lane IS NOT NULL OR v_answer <> 'cancelled' THEN
            PERFORM redrive.ring(NULL, p_now);
        END IF;
        RETURN v_answer;
    END IF;
    PERFORM 1 FROM parked k WHERE k.id = p_id;
    IF FOUND THEN RETURN 'parked'; END IF;
    PERFORM 1 FROM message m WHERE m.id = p_id;
    IF NOT FOUND THEN RETURN 'not_found'; END IF;
    RETURN CASE WHEN redrive.state_of(p_id) NOT IN ('pending', 'leased', 'parked') THEN 'already_closed' END;
END $body$;

-- refuse_cancel: why an operator's cancel is not done, if it is not. The application's own needs no second person.
CREATE OR REPLACE FUNCTION redrive.refuse_cancel(
    p_id uuid, p_destination text, p_attempt integer, p_version integer, p_actor text, p_reason text, p_now timestamptz
) RETURNS text LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
BEGIN
    IF p_actor IS NULL THEN
        RETURN NULL;
    ELSIF redrive.has_evidence(p_id) THEN
        RETURN 'evidence';
    END IF;
    RETURN redrive.second_person(p_destination, 'cancel', p_id::text, p_actor, p_reason,
                                 json_build_array(p_attempt, NULL, NULL, p_version), p_now);
END $body$;

CREATE OR REPLACE FUNCTION redrive.cancel_pending(p_row redrive.pending, p_actor text, p_reason text, p_now timestamptz)
RETURNS text LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
BEGIN
    -- In doubt it is looked up first; with an answer kept it was answered, and is recorded, never sent; with evidence it is held.
    IF p_row.in_doubt_since IS NOT NULL OR p_row.kept_answer IS NOT NULL OR redrive.has_evidence(p_row.id) THEN
        UPDATE pending p SET cancel_requested = true, due_at = least(p.due_at, p_now) WHERE p.id = p_row.id;
        RETURN CASE WHEN p_row.in_doubt_since IS NULL AND p_row.kept_answer IS NOT NULL THEN 'in_flight' ELSE 'in_doubt' END;
    END IF;
    DELETE FROM pending p WHERE p.id = p_row.id;
    INSERT INTO attempt (message_id, completed_at, attempt, spent, version, verb, tenant, destination, stage, closed, actor,
                         reason, token)
    VALUES (p_row.id, p_now, p_row.attempt, p_row.spent, p_row.version, 'cancel', p_row.tenant, p_row.destination,
            p_row.stage, 'cancelled', p_actor, p_reason, p_row.token);
    RETURN 'cancelled';
END $body$;
