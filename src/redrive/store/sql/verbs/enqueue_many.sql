-- enqueue_many: many messages in the caller's transaction, one row back per input position (from 1).
-- The first position of a key wins; keys are taken in sorted order, so that two such calls cannot deadlock (ruling 18).
-- Locks: idempotency in key order, then inserts only.
CREATE OR REPLACE FUNCTION redrive.enqueue_many_1(
    p_destinations  text[],
    p_bodies        bytea[],
    p_keys          text[],
    p_tenants       text[],
    p_kinds         text[],
    p_content_types text[],
    p_headers       text[],
    p_due_at        timestamptz[],
    p_expires_at    timestamptz[],
    p_levels        smallint[],
    p_now           timestamptz DEFAULT NULL
) RETURNS TABLE (place integer, result text, id uuid, sequence bigint, state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp
AS $body$
#variable_conflict use_column
DECLARE
    v_now     timestamptz := coalesce(p_now, clock_timestamp());
    v_ids     uuid[];
    v_is_new  boolean[];
BEGIN
    PERFORM redrive.refuse_message(g.destination, g.body, g.key, g.tenant, g.kind, g.content_type, g.headers::json, g.due_at,
                                   g.expires_at, g.level, v_now)
       FROM unnest(p_destinations, p_bodies, p_keys, p_tenants, p_kinds, p_content_types, p_headers, p_due_at, p_expires_at,
                   p_levels) AS g(destination, body, key, tenant, kind, content_type, headers, due_at, expires_at, level)
      WHERE redrive.is_within_bounds(g.destination, g.body, g.key, g.tenant, g.kind, g.content_type, g.headers::json,
                                     g.due_at, g.expires_at, g.level, v_now) IS NOT TRUE;

    -- 1. The registry. Keys that the look finds are not even tried.
    WITH given AS (
        SELECT n, tenant, key, sha256(convert_to(key, 'UTF8')) AS key_hash,
               row_number() OVER (PARTITION BY tenant, key ORDER BY n) AS nth
          FROM unnest(p_tenants, p_keys) WITH ORDINALITY AS g(tenant, key, n)
    ), registered AS (
        INSERT INTO idempotency (tenant, key_hash, message_id, fingerprint, created_at)
        SELECT g.tenant, g.key_hash, redrive.new_id(),
               redrive.fingerprint(p_destinations[g.n], p_kinds[g.n], NULL, p_bodies[g.n]), v_now
          FROM given g
         WHERE g.key IS NOT NULL AND g.nth = 1
           AND NOT EXISTS (SELECT 1 FROM idempotency i WHERE i.tenant = g.tenant AND i.key_hash = g.key_hash)
         ORDER BY g.tenant, g.key_hash
        ON CONFLICT DO NOTHING
        RETURNING tenant, key_hash, message_id
    )
    SELECT array_agg(CASE WHEN g.key IS NULL THEN redrive.new_id() ELSE r.message_id END ORDER BY g.n),
           array_agg(g.key IS NULL OR (r.message_id IS NOT NULL AND g.nth = 1) ORDER BY g.n)
      INTO v_ids, v_is_new
      FROM given g LEFT JOIN registered r ON r.tenant = g.tenant AND r.key_hash = g.key_hash;

    -- 2. The new ones.
    INSERT INTO message (id, created_at, expires_at, level, tenant, destination, kind, key, content_type, headers, body)
    SELECT v_ids[g.n], v_now, g.expires_at, g.level, g.tenant, g.destination, g.kind, g.key, g.content_type,
           g.headers::json, g.body
      FROM unnest(p_destinations, p_bodies, p_keys, p_tenants, p_kinds, p_content_types, p_headers, p_expires_at, p_levels)
           WITH ORDINALITY AS g(destination, body, key, tenant, kind, content_type, headers, expires_at, level, n)
     WHERE v_is_new[g.n];
    INSERT INTO pending (id, due_at, level, tenant, destination, expires_at)
    SELECT v_ids[g.n], greatest(g.due_at, v_now), g.level, g.tenant, g.destination, g.expires_at
      FROM unnest(p_destinations, p_tenants, p_due_at, p_expires_at, p_levels)
           WITH ORDINALITY AS g(destination, tenant, due_at, expires_at, level, n)
     WHERE v_is_new[g.n];
    RETURN QUERY SELECT n::integer, 'new', v_ids[n], NULL::bigint, 'pending'
                   FROM generate_subscripts(v_ids, 1) n WHERE v_is_new[n];

    -- 3. The known ones. A new statement, so that it sees the winner of a race too.
    RETURN QUERY
    SELECT g.n::integer,
           CASE WHEN i.fingerprint = redrive.fingerprint(g.destination, g.kind, NULL, g.body)
                THEN 'duplicate' ELSE 'conflict' END,
           i.message_id, i.sequence, coalesce(redrive.state_of(i.message_id), 'closed')
      FROM unnest(p_destinations, p_bodies, p_keys, p_tenants, p_kinds)
           WITH ORDINALITY AS g(destination, body, key, tenant, kind, n)
      JOIN idempotency i ON i.tenant = g.tenant AND i.key_hash = sha256(convert_to(g.key, 'UTF8'))
     WHERE NOT v_is_new[g.n];
END
$body$;
