-- enqueue_many: many messages in the caller's transaction, one row back per input position (from 1), in no set order.
-- The first position of a key wins; keys are taken in sorted order, so that two such calls cannot deadlock.
-- The messages of one ordering key are numbered in the order of the call, and the counters are taken in sorted order too.
-- What is due at once rings (doorbell.sql).
-- Refused is a destination that belongs to a system (owner.sql), and with it the whole call.
-- Locks: idempotency in key order, streams in key order, then inserts only. Relies on: idempotency's primary key.
-- Linear in the number of messages: the given arrays are only unnested, never subscripted (that walks the array from
-- its start), and the registry is probed row by row, never joined. The plans do not depend on the values, so they are
-- made once a session; a third is saved on calls with ten messages.
-- A call that is cut into several statements registers all its keys first, in sorted order over all statements (p_only_keys: returns the
-- ids under which keys are new, as 'registered'), and then enqueues under these ids (p_ids, NULL where a message has no key or its key was
-- known): so all keys are taken before the first counter, as in a call of one statement, and the first position wins over the whole call.
-- An id counts only where the registry has it for that key.
CREATE OR REPLACE FUNCTION redrive.enqueue_many_1(
    p_destinations text[], p_bodies bytea[], p_keys text[], p_tenants text[], p_kinds text[], p_content_types text[],
    p_headers text[], p_due_at timestamptz[], p_expires_at timestamptz[], p_levels smallint[], p_order_by text[] DEFAULT NULL,
    p_now timestamptz DEFAULT NULL, p_token_seeds text[] DEFAULT NULL, p_ids uuid[] DEFAULT NULL,
    p_only_keys boolean DEFAULT false
) RETURNS TABLE (place integer, result text, id uuid, sequence bigint, state text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_now        timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_keyed      bigint := coalesce(cardinality(p_keys) - cardinality(array_positions(p_keys, NULL)), 0);
        v_registered bigint := 0;
        v_ids        uuid[];
        v_holders    uuid[];
        v_lanes      bigint[];
        v_sequences  bigint[];
BEGIN
    IF EXISTS (SELECT 1 FROM destination_owner) THEN
        PERFORM redrive.refuse_owned(g.destination)
           FROM unnest(p_destinations) AS g(destination)
          WHERE EXISTS (SELECT 1 FROM destination_owner o WHERE starts_with(g.destination, o.prefix));
    END IF;
    PERFORM redrive.refuse_message(g.destination, g.body, g.key, g.tenant, g.kind, g.content_type, g.headers::json, g.due_at,
                                   g.expires_at, g.level, g.order_by, g.token_seed, v_now)
       FROM unnest(p_destinations, p_bodies, p_keys, p_tenants, p_kinds, p_content_types, p_headers, p_due_at, p_expires_at,
                   p_levels, p_order_by, p_token_seeds)
            AS g(destination, body, key, tenant, kind, content_type, headers, due_at, expires_at, level, order_by, token_seed)
      WHERE redrive.is_within_bounds(g.destination, g.body, g.key, g.tenant, g.kind, g.content_type, g.headers::json,
                                     g.due_at, g.expires_at, g.level, g.order_by, g.token_seed, v_now) IS NOT TRUE;
    IF p_ids IS NULL THEN
        v_ids := ARRAY(SELECT redrive.new_id() FROM generate_series(1, cardinality(p_destinations)));
    ELSE
        v_ids := ARRAY(SELECT CASE WHEN g.key IS NULL OR g.id IS NULL THEN redrive.new_id() ELSE g.id END
                         FROM unnest(p_keys, p_ids) WITH ORDINALITY AS g(key, id, n) ORDER BY g.n);
    END IF;

    -- 1. The registry. A key that is there already, or twice in this call, is passed over.
    IF v_keyed > 0 THEN
        INSERT INTO idempotency (tenant, key_hash, message_id, fingerprint, created_at)
        SELECT g.tenant, g.key_hash, v_ids[g.n], g.fingerprint, v_now
          FROM (SELECT g.n, g.tenant, sha256(convert_to(g.key, 'UTF8')) AS key_hash,
                       redrive.fingerprint(g.destination, g.kind, g.order_by, g.body) AS fingerprint
                  FROM unnest(p_destinations, p_bodies, p_keys, p_tenants, p_kinds, p_order_by)
                       WITH ORDINALITY AS g(destination, body, key, tenant, kind, order_by, n)
                 WHERE g.key IS NOT NULL
                OFFSET 0) g  -- the sort carries hashes, not payloads
         ORDER BY g.tenant COLLATE "C", g.key_hash, g.n
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS v_registered = ROW_COUNT;
    END IF;

    IF p_only_keys THEN
        RETURN QUERY
        SELECT g.n::integer, 'registered', g.id, NULL::bigint, 'pending'
          FROM unnest(p_tenants, p_keys, v_ids) WITH ORDINALITY AS g(tenant, key, id, n)
         WHERE (SELECT i.message_id FROM idempotency i
                 WHERE i.tenant = g.tenant AND i.key_hash = sha256(convert_to(g.key, 'UTF8'))) = g.id;
        RETURN;
    END IF;

    -- 2. Who holds each key. A new statement, so that it sees the winner of a race too.
    IF v_registered = v_keyed THEN
        v_holders := v_ids;
    ELSE
        v_holders := ARRAY(
            SELECT CASE WHEN g.key IS NULL THEN v_ids[g.n]
                        ELSE (SELECT i.message_id FROM idempotency i
                               WHERE i.tenant = g.tenant AND i.key_hash = sha256(convert_to(g.key, 'UTF8'))) END
              FROM unnest(p_tenants, p_keys) WITH ORDINALITY AS g(tenant, key, n)
             ORDER BY g.n);
    END IF;

    -- 3. Numbers for the new ones that have an ordering key; a token for the first new one of each key.
    IF cardinality(array_remove(p_order_by, NULL)) > 0 THEN
        -- What belongs to one key is brought together by sorting, not by a join: the planner takes both sides for tiny.
        WITH given AS MATERIALIZED (
            SELECT g.n, g.tenant, CASE WHEN v_holders[g.n] = v_ids[g.n] THEN g.order_by END AS order_by
              FROM unnest(p_tenants, p_order_by) WITH ORDINALITY AS g(tenant, order_by, n)
        ), numbered AS (
            INSERT INTO stream AS s (tenant, order_by, last_sequence)
            SELECT g.tenant, g.order_by, count(*) FROM given g WHERE g.order_by IS NOT NULL
             GROUP BY g.tenant, g.order_by
             ORDER BY g.tenant COLLATE "C", g.order_by COLLATE "C"
            ON CONFLICT (tenant, order_by) DO UPDATE SET last_sequence = s.last_sequence + excluded.last_sequence
            RETURNING s.id, s.tenant, s.order_by, s.last_sequence
        ), placed AS MATERIALIZED (
            SELECT b.n, max(b.lane) OVER key AS lane,
                   max(b.last_sequence) OVER key - count(b.n) OVER key + row_number() OVER (key ORDER BY b.n) AS sequence
              FROM (SELECT g.tenant, g.order_by, g.n, NULL::bigint AS lane, NULL::bigint AS last_sequence FROM given g
                    UNION ALL
                    SELECT n.tenant, n.order_by, NULL, n.id, n.last_sequence FROM numbered n) b
            WINDOW key AS (PARTITION BY b.tenant, b.order_by)
        ), laned AS (
            INSERT INTO lane (id) SELECT p.lane FROM placed p WHERE p.sequence = 1 AND p.n IS NOT NULL
        )
        SELECT array_agg(p.lane ORDER BY p.n), array_agg(p.sequence ORDER BY p.n) INTO v_lanes, v_sequences
          FROM placed p WHERE p.n IS NOT NULL;
        INSERT INTO lane_wake (destination, level, due_at, lane)
        SELECT DISTINCT ON (g.lane) g.destination, g.level, greatest(g.due_at, v_now), g.lane
          FROM unnest(p_destinations, p_levels, p_due_at, v_lanes, v_sequences)
               AS g(destination, level, due_at, lane, sequence)
         WHERE g.lane IS NOT NULL
         ORDER BY g.lane, g.sequence;
    END IF;

    -- 4. The new ones: those that hold their own key.
    INSERT INTO message (id, created_at, expires_at, lane, sequence, level, tenant, destination, kind, key, order_by,
                         content_type, headers, body, token_seed)
    SELECT v_ids[g.n], v_now, g.expires_at, g.lane, g.sequence, g.level, g.tenant, g.destination, g.kind, g.key, g.order_by,
           g.content_type, g.headers::json, g.body, g.token_seed
      FROM unnest(p_destinations, p_bodies, p_keys, p_tenants, p_kinds, p_content_types, p_headers, p_expires_at, p_levels,
                  p_order_by, p_token_seeds, v_lanes, v_sequences)
           WITH ORDINALITY AS g(destination, body, key, tenant, kind, content_type, headers, expires_at, level, order_by,
                                token_seed, lane, sequence, n)
     WHERE v_holders[g.n] = v_ids[g.n];
    INSERT INTO pending (id, due_at, lane, sequence, level, tenant, destination, expires_at, token, in_doubt_since)
    SELECT v_ids[g.n], greatest(g.due_at, v_now), g.lane, g.sequence, g.level, g.tenant, g.destination, g.expires_at,
           CASE WHEN g.token_seed IS NOT NULL THEN redrive.token_of(v_ids[g.n], g.tenant, g.token_seed, 1, 'first') END,
           CASE WHEN g.token_seed IS NOT NULL THEN redrive.doubted_since(g.destination) END
      FROM unnest(p_destinations, p_tenants, p_due_at, p_expires_at, p_levels, p_token_seeds, v_lanes, v_sequences)
           WITH ORDINALITY AS g(destination, tenant, due_at, expires_at, level, token_seed, lane, sequence, n)
     WHERE v_holders[g.n] = v_ids[g.n];
    PERFORM redrive.ring(array_agg(DISTINCT g.destination), v_now)
       FROM unnest(p_destinations, p_due_at, v_ids, v_holders) AS g(destination, due_at, id, holder)
      WHERE g.holder = g.id AND (g.due_at IS NULL OR g.due_at <= v_now)
     HAVING count(*) > 0;
    RETURN QUERY SELECT g.n::integer, 'new', g.id, g.sequence, 'pending'
                   FROM unnest(v_ids, v_holders, v_sequences) WITH ORDINALITY AS g(id, holder, sequence, n)
                  WHERE g.holder = g.id;

    -- 5. The known ones.
    IF v_registered < v_keyed THEN
        RETURN QUERY
        SELECT g.n::integer,
               CASE WHEN h.fingerprint = redrive.fingerprint(g.destination, g.kind, g.order_by, g.body)
                    THEN 'duplicate' ELSE 'conflict' END,
               h.message_id, h.sequence, h.state
          FROM unnest(p_destinations, p_bodies, p_keys, p_tenants, p_kinds, p_order_by)
               WITH ORDINALITY AS g(destination, body, key, tenant, kind, order_by, n)
         CROSS JOIN LATERAL redrive.holder_of(g.tenant, sha256(convert_to(g.key, 'UTF8'))) h
         WHERE v_holders[g.n] <> v_ids[g.n];
    END IF;
END $body$;
