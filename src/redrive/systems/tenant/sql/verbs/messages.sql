-- What an auditor and old readers know: one row an event, by the names of the document (T-09). Security-invoker views: a reader sees
-- what its role and tenant may see of the engine's tables.

-- payload_of: the payload of a version as JSON. NULL where it is none, so that one bad row fails no list, and for a reader who may not
-- see payloads: the engine keeps them apart (redrive_console, redrive_approver).
-- Not SECURITY DEFINER: it reads with the rights of the caller, and only if there are any.
CREATE OR REPLACE FUNCTION redrive_tenant.payload_of(p_id uuid, p_version integer) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF NOT (has_column_privilege('redrive.message', 'body', 'SELECT') AND has_table_privilege('redrive.body', 'SELECT')) THEN
        RETURN NULL;
    END IF;
    RETURN convert_from(coalesce((SELECT b.bytes FROM redrive.body b WHERE b.message_id = p_id AND b.version = p_version),
                                 (SELECT m.body FROM redrive.message m WHERE m.id = p_id)), 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR statement_too_complex OR program_limit_exceeded THEN
    RETURN NULL;
END $body$;

-- key_of: a key as a UUID; NULL where it is none. Plain SQL, so that it is inlined.
CREATE OR REPLACE FUNCTION redrive_tenant.key_of(p_key text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE WHEN p_key ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN p_key::uuid END
$body$;

-- time_of: when an id was made, to the millisecond. Plain SQL, so that it is inlined.
CREATE OR REPLACE FUNCTION redrive_tenant.time_of(p_id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT to_timestamp(('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
$body$;

-- last_error: what the last failure of a message said. Relies on: attempt_message.
CREATE OR REPLACE FUNCTION redrive_tenant.last_error(p_id uuid) RETURNS text LANGUAGE sql STABLE AS $body$
    SELECT coalesce(a.text, a.code) FROM redrive.attempt a
     WHERE a.message_id = p_id AND a.settlement IN ('retry', 'park') ORDER BY a.attempt DESC LIMIT 1
$body$;

-- Where each event is. retry_count: failed attempts since it was enqueued or requeued by a person. has_failed: it failed at least
-- once; also where its breaker made the failure free of charge, so that retry_count is 0. processed_at: when it was delivered;
-- is_processed: nothing more happens to it, however it ended. Four branches, each with is_processed as a constant:
-- `WHERE NOT is_processed` reads the engine's tables of open work and never the archive.
-- Relies on: the tables of open work are small; message's primary key, a probe a row.
CREATE OR REPLACE VIEW redrive_tenant.states WITH (security_invoker = true) AS
SELECT p.id, p.tenant, p.destination, p.version, 'pending' AS state, false AS is_processed, NULL::timestamptz AS processed_at,
       p.spent AS retry_count, CASE WHEN p.spent > 0 OR p.down_since IS NOT NULL THEN p.due_at END AS next_attempt_at,
       false AS dead_letter, NULL::text AS error, p.spent > 0 OR p.down_since IS NOT NULL AS has_failed
  FROM redrive.pending p WHERE starts_with(p.destination, 'tenant.')
UNION ALL
SELECT l.id, l.tenant, l.destination, l.version, 'leased', false, NULL, l.spent, NULL, false, NULL,
       l.spent > 0 OR l.down_since IS NOT NULL
  FROM redrive.lease l WHERE starts_with(l.destination, 'tenant.')
UNION ALL
SELECT k.id, k.tenant, k.destination, k.version, k.reason, false, NULL, k.spent, NULL, k.reason = 'dead',
       coalesce(k.last_text, k.error_class), k.spent > 0 OR k.reason = 'dead'
  FROM redrive.parked k WHERE starts_with(k.destination, 'tenant.')
UNION ALL
SELECT a.message_id, a.tenant, a.destination, a.version, a.closed, true,
       CASE WHEN a.closed = 'delivered' THEN a.completed_at END,
       CASE WHEN a.closed = 'delivered' AND a.verb IN ('settle', 'complete') THEN greatest(a.spent - 1, 0) ELSE a.spent END,
       NULL, false, NULL, a.closed <> 'delivered' AND a.spent > 0
  FROM redrive.attempt a WHERE a.closed IS NOT NULL AND starts_with(a.destination, 'tenant.');

CREATE OR REPLACE VIEW redrive_tenant.outbox_messages WITH (security_invoker = true) AS
SELECT m.id, m.tenant AS tenant_id, m.kind AS event_type,
       redrive_tenant.payload_of(s.id, s.version) AS payload,
       redrive_tenant.key_of(m.key) AS idempotency_key, m.created_at, s.processed_at, s.is_processed, s.retry_count,
       CASE WHEN s.has_failed THEN coalesce(s.error, redrive_tenant.last_error(s.id)) END AS error,
       s.next_attempt_at, s.dead_letter, s.state, m.destination AS outbox, m.order_by
  FROM redrive_tenant.states s
  JOIN redrive.message m ON m.id = s.id;

CREATE OR REPLACE VIEW redrive_tenant."OutboxMessages" WITH (security_invoker = true) AS
SELECT o.id AS "Id", o.tenant_id AS "TenantId", o.event_type AS "EventType", o.payload AS "Payload",
       o.idempotency_key AS "IdempotencyKey", o.created_at AS "CreatedAt", o.processed_at AS "ProcessedAt",
       o.is_processed AS "IsProcessed", o.retry_count AS "RetryCount", o.error AS "Error",
       o.next_attempt_at AS "NextAttemptAt", o.dead_letter AS "DeadLetter"
  FROM redrive_tenant.outbox_messages o;
