-- redrive: after audit
-- create_token: a new login by a secret; only the hash of the secret is stored. kind: token or link.
-- Answers its id.
-- Locks: the audit chain.
CREATE OR REPLACE FUNCTION redrive.create_token_1(
    p_kind text, p_name text, p_role text, p_tenant text, p_secret_hash bytea, p_valid_seconds float8, p_actor text,
    p_reason text, p_now timestamptz DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
        v_id  uuid := redrive.new_id();
BEGIN
    INSERT INTO access_token (id, kind, name, role, tenant, secret_hash, created_at, created_by, expires_at)
    VALUES (v_id, p_kind, p_name, p_role, p_tenant, p_secret_hash, v_now, p_actor, v_now + p_valid_seconds * interval '1 s');
    PERFORM redrive.audit(p_actor, 'create_token', 'token ' || v_id, p_reason, NULL,
                          json_build_object('kind', p_kind, 'name', p_name, 'role', p_role, 'tenant', p_tenant,
                                            'valid_seconds', p_valid_seconds), v_now);
    RETURN v_id;
END $body$;

-- revoke_token: ends the token and the sessions that were opened with it. Answers 'done', 'revoked' (before) or
-- 'not_found'.
-- Locks: the token, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.revoke_token_1(p_id uuid, p_actor text, p_reason text, p_now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp()); v_token access_token;
BEGIN
    SELECT * INTO v_token FROM access_token t WHERE t.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'not_found';
    ELSIF v_token.revoked_at IS NOT NULL THEN
        RETURN 'revoked';
    END IF;
    UPDATE access_token t SET revoked_at = v_now WHERE t.id = p_id;
    DELETE FROM access_session s WHERE s.token_id = p_id;
    PERFORM redrive.audit(p_actor, 'revoke_token', 'token ' || p_id, p_reason,
                          json_build_object('name', v_token.name, 'role', v_token.role, 'tenant', v_token.tenant), NULL, v_now);
    RETURN 'done';
END $body$;

-- find_token: who comes with this secret, if it is of a token that is good now; no row else. A link is none: it is good for
-- a login only. That it was used is noted about once a minute.
-- Locks: now and then the token, with SKIP LOCKED. Relies on: the unique index of the hash.
CREATE OR REPLACE FUNCTION redrive.find_token_1(p_secret_hash bytea, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (name text, role text, tenant text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_token access_token;
BEGIN
    SELECT * INTO v_token FROM access_token t
     WHERE t.secret_hash = p_secret_hash AND t.kind = 'token' AND t.revoked_at IS NULL AND t.expires_at > v_now;
    IF NOT FOUND THEN RETURN; END IF;
    IF v_token.used_at IS NULL OR v_token.used_at < v_now - interval '1 minute' THEN
        UPDATE access_token t SET used_at = v_now
          FROM (SELECT x.id FROM access_token x WHERE x.id = v_token.id FOR UPDATE SKIP LOCKED) free
         WHERE t.id = free.id;
    END IF;
    RETURN QUERY SELECT v_token.name, v_token.role, v_token.tenant;
END $body$;

-- log_in: opens a session for the secret of a valid token or link; a link is used up by it.
-- Returns the token's owner, or no row. Ended sessions are deleted on the way.
-- Locks: the token, then the audit chain.
CREATE OR REPLACE FUNCTION redrive.log_in_1(
    p_secret_hash bytea, p_session_hash bytea, p_valid_seconds float8, p_peer text, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (name text, role text, tenant text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_token access_token;
BEGIN
    SELECT * INTO v_token FROM access_token t
     WHERE t.secret_hash = p_secret_hash AND t.revoked_at IS NULL AND t.expires_at > v_now
       AND NOT (t.kind = 'link' AND t.used_at IS NOT NULL)
       FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    UPDATE access_token t SET used_at = v_now WHERE t.id = v_token.id;
    DELETE FROM access_session s WHERE s.secret_hash = ANY (ARRAY(
        SELECT o.secret_hash FROM access_session o WHERE o.expires_at <= v_now LIMIT 1000));
    INSERT INTO access_session (secret_hash, token_id, created_at, seen_at, expires_at)
    VALUES (p_session_hash, v_token.id, v_now, v_now,
            CASE v_token.kind WHEN 'link' THEN v_now + p_valid_seconds * interval '1 s'
                              ELSE least(v_token.expires_at, v_now + p_valid_seconds * interval '1 s') END);
    PERFORM redrive.audit(v_token.name, 'log_in', 'token ' || v_token.id, 'logged in by a ' || v_token.kind, NULL,
                          json_build_object('peer', p_peer), v_now);
    RETURN QUERY SELECT v_token.name, v_token.role, v_token.tenant;
END $body$;

-- find_session: who has this session, if it is good now and was used within p_idle_seconds; no row else. That it was used is
-- noted about once a minute.
-- Locks: now and then the session, with SKIP LOCKED. Relies on: the primary key.
CREATE OR REPLACE FUNCTION redrive.find_session_1(p_session_hash bytea, p_idle_seconds float8, p_now timestamptz DEFAULT NULL)
RETURNS TABLE (name text, role text, tenant text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_found record;
BEGIN
    SELECT s.seen_at, t.name, t.role, t.tenant INTO v_found
      FROM access_session s JOIN access_token t ON t.id = s.token_id
     WHERE s.secret_hash = p_session_hash AND s.expires_at > v_now AND t.revoked_at IS NULL
       AND s.seen_at > v_now - p_idle_seconds * interval '1 s';
    IF NOT FOUND THEN RETURN; END IF;
    IF v_found.seen_at < v_now - interval '1 minute' THEN
        UPDATE access_session s SET seen_at = v_now
          FROM (SELECT x.secret_hash FROM access_session x WHERE x.secret_hash = p_session_hash FOR UPDATE SKIP LOCKED) free
         WHERE s.secret_hash = free.secret_hash;
    END IF;
    RETURN QUERY SELECT v_found.name, v_found.role, v_found.tenant;
END $body$;

-- log_out: the session is over. Answers whether there was one.
CREATE OR REPLACE FUNCTION redrive.log_out_1(p_session_hash bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    DELETE FROM access_session s WHERE s.secret_hash = p_session_hash;
    RETURN FOUND;
END $body$;

-- has_token: whether a valid token exists.
CREATE OR REPLACE FUNCTION redrive.has_token_1(p_now timestamptz DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    RETURN EXISTS (SELECT 1 FROM access_token t WHERE t.kind = 'token' AND t.revoked_at IS NULL
                      AND t.expires_at > coalesce(p_now, clock_timestamp()));
END $body$;

-- list_tokens: tokens behind p_before, latest first; never their secrets. Links are left out.
CREATE OR REPLACE FUNCTION redrive.list_tokens_1(
    p_before uuid, p_limit integer
) RETURNS TABLE (
    id uuid, name text, role text, tenant text, created_at timestamptz, created_by text, expires_at timestamptz,
    used_at timestamptz, revoked_at timestamptz
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT t.id, t.name, t.role, t.tenant, t.created_at, t.created_by, t.expires_at, t.used_at, t.revoked_at
      FROM access_token t
     WHERE t.kind = 'token' AND (p_before IS NULL OR t.id < p_before)
     ORDER BY t.id DESC LIMIT p_limit;
END $body$;

-- note_access: writes a refused request, or the reading of confidential data (act read_payload), into the audit.
-- Locks: the audit chain.
CREATE OR REPLACE FUNCTION redrive.note_access_1(
    p_actor text, p_act text, p_subject text, p_reason text, p_detail json, p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    IF p_act NOT IN ('access_denied', 'read_payload') THEN
        RAISE EXCEPTION 'act is %; it must be access_denied or read_payload.', quote_literal(p_act) USING ERRCODE = '22023';
    END IF;
    PERFORM redrive.audit(p_actor, p_act, p_subject, p_reason, NULL, p_detail, coalesce(p_now, clock_timestamp()));
END $body$;

-- begin_request: whether a change under this key is to be made now. Answers (result, status, answer): 'new'; 'answered' with
-- what was said then; 'in_flight' while another one is at it; 'other' where the key was used for something else.
-- One that began p_stale_seconds ago and was never answered is taken over: its process is gone. Keys older than
-- p_keep_seconds are forgotten on the way.
-- Locks: the row of the key.
CREATE OR REPLACE FUNCTION redrive.begin_request_1(
    p_actor text, p_key_hash bytea, p_fingerprint bytea, p_stale_seconds float8, p_keep_seconds float8,
    p_now timestamptz DEFAULT NULL
) RETURNS TABLE (result text, status integer, answer bytea) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_found api_request;
BEGIN
    DELETE FROM api_request r WHERE r.ctid = ANY (ARRAY(
        SELECT o.ctid FROM api_request o WHERE o.asked_at < v_now - p_keep_seconds * interval '1 s' ORDER BY o.asked_at
         LIMIT 100 FOR UPDATE SKIP LOCKED));
    INSERT INTO api_request (actor, key_hash, fingerprint, asked_at) VALUES (p_actor, p_key_hash, p_fingerprint, v_now)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN QUERY SELECT 'new', NULL::integer, NULL::bytea;
        RETURN;
    END IF;
    SELECT * INTO v_found FROM api_request r WHERE r.actor = p_actor AND r.key_hash = p_key_hash FOR UPDATE;
    IF v_found.fingerprint <> p_fingerprint THEN
        RETURN QUERY SELECT 'other', NULL::integer, NULL::bytea;
    ELSIF v_found.status IS NOT NULL THEN
        RETURN QUERY SELECT 'answered', v_found.status, v_found.answer;
    ELSIF v_found.asked_at > v_now - p_stale_seconds * interval '1 s' THEN
        RETURN QUERY SELECT 'in_flight', NULL::integer, NULL::bytea;
    ELSE
        UPDATE api_request r SET asked_at = v_now WHERE r.actor = p_actor AND r.key_hash = p_key_hash;
        RETURN QUERY SELECT 'new', NULL::integer, NULL::bytea;
    END IF;
END $body$;

-- end_request: stores the answer for repeated requests; with no status, nothing was done and the key is free again.
-- Locks: the row of the key.
CREATE OR REPLACE FUNCTION redrive.end_request_1(p_actor text, p_key_hash bytea, p_status integer, p_answer bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    IF p_status IS NULL THEN
        DELETE FROM api_request r WHERE r.actor = p_actor AND r.key_hash = p_key_hash AND r.status IS NULL;
    ELSE
        UPDATE api_request r SET status = p_status, answer = p_answer
         WHERE r.actor = p_actor AND r.key_hash = p_key_hash AND r.status IS NULL;
    END IF;
END $body$;
