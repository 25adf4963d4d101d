-- redrive: after parked
-- copy: a new message with what a discarded one had, as it was last edited, under a new key: what is discarded stays so.
-- Answers (result, id): 'new', 'duplicate' (this copy was made before), 'conflict' (the key is another message's),
-- 'owned' (the destination belongs to a system: only that one enqueues there, owner.sql), 'second_person' or 'approver' where it moves
-- money, 'evidence' where something says that the discarded one was delivered, or the state of a message that was not discarded. It does
-- not expire.
-- Locks: as enqueue, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.copy_1(p_id uuid, p_key text, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (result text, id uuid) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now     timestamptz := coalesce(p_now, clock_timestamp());
        v_message message;
        v_end     attempt;
        v_body    body;
        v_new     record;
        v_second  text;
BEGIN
    SELECT * INTO v_end FROM attempt a WHERE a.message_id = p_id AND a.closed = 'discarded';
    IF NOT FOUND THEN
        RETURN QUERY SELECT redrive.refusal(p_id), NULL::uuid;
        RETURN;
    END IF;
    SELECT * INTO v_message FROM message m WHERE m.id = p_id;
    SELECT * INTO v_body FROM body b WHERE b.message_id = p_id AND b.version = v_end.version;
    IF redrive.owner_of(v_message.destination) IS NOT NULL THEN
        RETURN QUERY SELECT 'owned', NULL::uuid;
        RETURN;
    END IF;
    IF redrive.has_evidence(p_id) THEN
        RETURN QUERY SELECT 'evidence', NULL::uuid;
        RETURN;
    END IF;
    v_second := redrive.second_person(v_message.destination, 'copy', p_id::text, p_actor, p_reason,
                                      json_build_array(v_end.attempt, extract(epoch FROM v_end.completed_at), NULL, v_end.version), v_now,
                                      json_build_object('key', p_key));
    IF v_second IS NOT NULL THEN
        RETURN QUERY SELECT v_second, NULL::uuid;
        RETURN;
    END IF;
    SELECT * INTO v_new FROM redrive.enqueue_1(
        v_message.destination, coalesce(v_body.bytes, v_message.body), p_key, v_message.tenant, v_message.kind,
        coalesce(v_body.content_type, v_message.content_type), v_message.headers, p_level => v_message.level,
        p_order_by => v_message.order_by, p_now => v_now);
    IF v_new.result = 'new' THEN
        PERFORM redrive.audit(p_actor, 'copy', p_id::text, p_reason, json_build_object('state', 'discarded'),
                              json_build_object('copy', v_new.id), v_now);
    END IF;
    RETURN QUERY SELECT v_new.result, v_new.id;
END $body$;
