-- audit: one row per operator's act, chained by hash, in the transaction of the act. Taken last in every verb: the chain
-- lock is held until commit, so operators wait for each other, and never for a relay.
CREATE OR REPLACE FUNCTION redrive.audit(
    p_actor text, p_act text, p_subject text, p_reason text, p_before json, p_after json, p_now timestamptz
) RETURNS void LANGUAGE plpgsql SET search_path = redrive, pg_temp AS $body$
DECLARE v_last record;
BEGIN
    IF coalesce(btrim(p_actor), '') = '' OR coalesce(btrim(p_reason), '') = '' THEN
        RAISE EXCEPTION 'An act needs an actor and a reason; actor is %, reason is %.',
              coalesce(quote_literal(p_actor), 'missing'), coalesce(quote_literal(p_reason), 'missing')
              USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('redrive.operator_action', 0));
    SELECT o.id, o.hash INTO v_last FROM operator_action o ORDER BY o.id DESC LIMIT 1;
    INSERT INTO operator_action (id, at, actor, act, subject, reason, before, after, previous_hash, hash)
    VALUES (coalesce(v_last.id, 0) + 1, p_now, p_actor, p_act, p_subject, p_reason, p_before, p_after,
            coalesce(v_last.hash, '\x'),
            redrive.action_hash(coalesce(v_last.id, 0) + 1, p_now, p_actor, p_act, p_subject, p_reason, p_before, p_after,
                                coalesce(v_last.hash, '\x')));
END $body$;

CREATE OR REPLACE FUNCTION redrive.action_hash(
    p_id bigint, p_at timestamptz, p_actor text, p_act text, p_subject text, p_reason text, p_before json, p_after json,
    p_previous bytea
) RETURNS bytea LANGUAGE sql IMMUTABLE AS $body$
    SELECT sha256(p_previous || convert_to(json_build_array(
        p_id, extract(epoch FROM p_at), p_actor, p_act, p_subject, p_reason, p_before, p_after)::text, 'UTF8'))
$body$;
