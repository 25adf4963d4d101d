-- token_of: what the destination deduplicates by, of one version and stage of a message. With a token seed it is made of tenant, seed,
-- version and stage, the same in every database; without one of the id, and it is NULL (the id itself) for the first of each.
-- Lengths go first, so that no two inputs run together. A UUID of version 8. The same in Python: redrive.message.token.
CREATE OR REPLACE FUNCTION redrive.token_of(p_id uuid, p_tenant text, p_seed text, p_version integer, p_stage text) RETURNS uuid
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $body$
DECLARE v_hash bytea;
BEGIN
    IF p_seed IS NOT NULL THEN
        v_hash := sha256(convert_to(concat_ws(':', octet_length(p_tenant), p_tenant, octet_length(p_seed), p_seed, p_version,
                                              p_stage), 'UTF8'));
    ELSIF p_version = 1 AND p_stage = 'first' THEN
        RETURN NULL;
    ELSE
        v_hash := sha256(uuid_send(p_id) || int4send(p_version) || convert_to(p_stage, 'UTF8'));
    END IF;
    v_hash := substring(v_hash FOR 16);
    v_hash := set_byte(v_hash, 6, get_byte(v_hash, 6) & 15 | 128);
    v_hash := set_byte(v_hash, 8, get_byte(v_hash, 8) & 63 | 128);
    RETURN encode(v_hash, 'hex')::uuid;
END $body$;

-- token_for: the same for a message that exists.
CREATE OR REPLACE FUNCTION redrive.token_for(p_id uuid, p_version integer, p_stage text) RETURNS uuid
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN (SELECT redrive.token_of(m.id, m.tenant, m.token_seed, p_version, p_stage) FROM redrive.message m WHERE m.id = p_id);
END $body$;

-- token_used_since: when a claim first used the token of this version and stage: it counts from there how long the destination
-- remembers it. What was handed back was not begun. An adopted message may have used it since it was made.
CREATE OR REPLACE FUNCTION redrive.token_used_since(p_id uuid, p_version integer, p_stage text) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN (SELECT min(CASE WHEN a.verb = 'adopt' THEN (SELECT m.created_at FROM redrive.message m WHERE m.id = p_id)
                            ELSE a.claimed_at END)
              FROM redrive.attempt a
             WHERE a.message_id = p_id AND a.version = p_version AND a.stage = p_stage
               AND (a.verb IN ('settle', 'complete', 'reap') OR (a.verb = 'adopt' AND a.attempt > 0)));
END $body$;
