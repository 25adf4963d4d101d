-- enqueue: one message in the caller's transaction (G-01 to G-03, G-26).
-- Returns result = 'new', 'duplicate' (same key, same content) or 'conflict' (same key, other content); raises only for
-- values out of bounds and for a destination that belongs to a system (owner.sql): that system's own function is the only way
-- there, for every login. A duplicate writes nothing and burns nothing, not even a transaction id: the insert looks into the
-- index before it writes. It waits only for a transaction that has put the same key and not ended yet.
-- With p_order_by it takes the next number of its key, gap-free, because the counter is locked until the caller's transaction
-- ends: another enqueue for the same key waits for that. No relay does (LANES.md).
-- What is due at once rings (doorbell.sql).
-- Locks: idempotency (insert), then the stream, then inserts only. Relies on: idempotency's primary key.
-- p_token_seed: the message has the same tokens in every database that has a message of this tenant and seed (token.sql).
CREATE OR REPLACE FUNCTION redrive.enqueue_1(
    p_destination text, p_body bytea, p_key text DEFAULT NULL, p_tenant text DEFAULT 'default', p_kind text DEFAULT '',
    p_content_type text DEFAULT 'application/json', p_headers json DEFAULT NULL, p_due_at timestamptz DEFAULT NULL,
    p_expires_at timestamptz DEFAULT NULL, p_level smallint DEFAULT 1, p_order_by text DEFAULT NULL,
    p_now timestamptz DEFAULT NULL, p_token_seed text DEFAULT NULL, OUT result text, OUT id uuid, OUT sequence bigint,
    OUT state text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
#variable_conflict use_column
DECLARE v_new record;
BEGIN
    IF EXISTS (SELECT 1 FROM destination_owner o WHERE starts_with(p_destination, o.prefix)) THEN
        PERFORM redrive.refuse_owned(p_destination);
    END IF;
    -- An assignment, not a SELECT: it needs no plan.
    v_new := redrive.enqueue_internal(p_destination, p_body, p_key, p_tenant, p_kind, p_content_type, p_headers, p_due_at,
                                      p_expires_at, p_level, p_order_by, redrive.allowed_now(p_now), p_token_seed);
    result := v_new.result;
    id := v_new.id;
    sequence := v_new.sequence;
    state := v_new.state;
END $body$;

-- enqueue_internal: the same for the functions of the engine and of systems, which may enqueue anywhere. It has no grant.
CREATE OR REPLACE FUNCTION redrive.enqueue_internal(
    p_destination text, p_body bytea, p_key text DEFAULT NULL, p_tenant text DEFAULT 'default', p_kind text DEFAULT '',
    p_content_type text DEFAULT 'application/json', p_headers json DEFAULT NULL, p_due_at timestamptz DEFAULT NULL,
    p_expires_at timestamptz DEFAULT NULL, p_level smallint DEFAULT 1, p_order_by text DEFAULT NULL,
    p_now timestamptz DEFAULT NULL, p_token_seed text DEFAULT NULL, OUT result text, OUT id uuid, OUT sequence bigint,
    OUT state text
) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE v_now         timestamptz := coalesce(p_now, clock_timestamp());
        v_hash        bytea;
        v_fingerprint bytea;
        v_holder      record;
        v_lane        bigint;
BEGIN
    IF NOT redrive.is_within_bounds(p_destination, p_body, p_key, p_tenant, p_kind, p_content_type, p_headers, p_due_at,
                                    p_expires_at, p_level, p_order_by, p_token_seed, v_now) IS TRUE THEN
        PERFORM redrive.refuse_message(p_destination, p_body, p_key, p_tenant, p_kind, p_content_type, p_headers, p_due_at,
                                       p_expires_at, p_level, p_order_by, p_token_seed, v_now);
    END IF;
    id := redrive.new_id();
    IF p_key IS NOT NULL THEN
        v_hash := sha256(convert_to(p_key, 'UTF8'));
        v_fingerprint := redrive.fingerprint(p_destination, p_kind, p_order_by, p_body);
        INSERT INTO redrive.idempotency (tenant, key_hash, message_id, fingerprint, created_at)
        VALUES (p_tenant, v_hash, enqueue_internal.id, v_fingerprint, v_now)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            -- The transaction that took the key has committed, and a new statement sees it.
            SELECT * INTO STRICT v_holder FROM redrive.holder_of(p_tenant, v_hash);
            result := CASE WHEN v_holder.fingerprint = v_fingerprint THEN 'duplicate' ELSE 'conflict' END;
            id := v_holder.message_id;
            sequence := v_holder.sequence;
            state := v_holder.state;
            RETURN;
        END IF;
    END IF;
    IF p_order_by IS NOT NULL THEN
        INSERT INTO redrive.stream AS s (tenant, order_by, last_sequence) VALUES (p_tenant, p_order_by, 1)
        ON CONFLICT (tenant, order_by) DO UPDATE SET last_sequence = s.last_sequence + 1
        RETURNING s.id, s.last_sequence INTO v_lane, sequence;
        IF sequence = 1 THEN
            INSERT INTO redrive.lane (id) VALUES (v_lane);
        END IF;
        INSERT INTO redrive.lane_wake (destination, level, due_at, lane)
        VALUES (p_destination, p_level, greatest(p_due_at, v_now), v_lane);
    END IF;
    INSERT INTO redrive.message (id, created_at, expires_at, lane, sequence, level, tenant, destination, kind, key, order_by,
                                 content_type, headers, body, token_seed)
    VALUES (enqueue_internal.id, v_now, p_expires_at, v_lane, enqueue_internal.sequence, p_level, p_tenant, p_destination, p_kind,
            p_key, p_order_by, p_content_type, p_headers, p_body, p_token_seed);
    INSERT INTO redrive.pending (id, due_at, lane, sequence, level, tenant, destination, expires_at, token, in_doubt_since)
    VALUES (enqueue_internal.id, greatest(p_due_at, v_now), v_lane, enqueue_internal.sequence, p_level, p_tenant, p_destination,
            p_expires_at, CASE WHEN p_token_seed IS NOT NULL
                               THEN redrive.token_of(enqueue_internal.id, p_tenant, p_token_seed, 1, 'first') END,
            CASE WHEN p_token_seed IS NOT NULL THEN redrive.doubted_since(p_destination) END);
    IF p_due_at IS NULL OR p_due_at <= v_now THEN
        PERFORM redrive.ring(ARRAY[p_destination], v_now);
    END IF;
    result := 'new';
    state := 'pending';
END $body$;

-- doubted_since: since when a message of a seed that is new here may have been sent before, from a database that is gone: since the last
-- epoch (epoch.sql), where money moves and the destination can be asked. Before its first send it is looked up. NULL = it was not.
CREATE OR REPLACE FUNCTION redrive.doubted_since(p_destination text) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN (SELECT max(e.began_at) FROM redrive.epoch e
             WHERE e.number > 1 AND coalesce(e.destination, p_destination) = p_destination
               AND EXISTS (SELECT 1 FROM redrive.destination d WHERE d.name = p_destination AND d.money AND d.in_doubt = 'lookup'));
END $body$;

-- holder_of: the first message of a key, as the registry knows it, and where that message is now.
-- Never a sequential scan: a plan that was made while the registry was tiny is kept by the session while it grows
-- (measured at 100,000 keys: 19 ms a duplicate instead of 0.14).
CREATE OR REPLACE FUNCTION redrive.holder_of(
    p_tenant text, p_key_hash bytea, OUT message_id uuid, OUT sequence bigint, OUT fingerprint bytea, OUT state text
) LANGUAGE plpgsql STABLE SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
BEGIN
    SELECT i.message_id, (SELECT m.sequence FROM redrive.message m WHERE m.id = i.message_id), i.fingerprint,
           coalesce(redrive.state_of(i.message_id), 'closed')
      INTO STRICT message_id, sequence, fingerprint, state
      FROM redrive.idempotency i WHERE i.tenant = p_tenant AND i.key_hash = p_key_hash;
END $body$;

-- What makes two messages of one key the same: destination, kind, ordering key and the bytes of the payload
-- (canonical JSON where the producer is ours). Lengths go first, so that no two inputs run together.
-- STABLE, as convert_to and concat_ws are: declared IMMUTABLE it would not be inlined, at 15 µs a call.
CREATE OR REPLACE FUNCTION redrive.fingerprint(p_destination text, p_kind text, p_order_by text, p_body bytea) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE AS $body$
    SELECT sha256(convert_to(concat_ws(':', octet_length(p_destination), p_destination, octet_length(p_kind), p_kind,
                                       coalesce(octet_length(p_order_by), -1), coalesce(p_order_by, ''), ''), 'UTF8')
                  || p_body)
$body$;
