-- redrive: after messages
-- An INSERT into the views is an enqueue in the writer's transaction, with the rights of the writer: for models of an ORM and for
-- other languages. A key that is known gives the first event back, and nothing is written; without a key the event gets a new one.
-- What the dispatcher sets (processed_at, retry_count, error, …) cannot be given; id and created_at are the engine's and come back by
-- RETURNING.
-- Locks and bounds: those of redrive.enqueue_1.
CREATE OR REPLACE FUNCTION redrive_tenant.insert_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE v_answer record;
BEGIN
    IF NEW.processed_at IS NOT NULL OR NEW.is_processed OR NEW.dead_letter OR NEW.retry_count <> 0 OR NEW.error IS NOT NULL
       OR NEW.next_attempt_at IS NOT NULL THEN
        RAISE EXCEPTION 'an event is inserted unprocessed: processed_at, is_processed, retry_count, error, next_attempt_at and'
            ' dead_letter are the relay''s.' USING ERRCODE = '22023';
    END IF;
    IF NEW.tenant_id IS NULL OR coalesce(NEW.event_type, '') = '' OR NEW.payload IS NULL THEN
        RAISE EXCEPTION 'an event needs tenant_id, event_type and payload.' USING ERRCODE = '23502';
    END IF;
    NEW.outbox := coalesce(NEW.outbox, 'tenant.events');
    IF NOT starts_with(NEW.outbox, 'tenant.') THEN
        RAISE EXCEPTION 'outbox % is none: its name must begin with "tenant.".', NEW.outbox USING ERRCODE = '22023';
    END IF;
    NEW.idempotency_key := coalesce(NEW.idempotency_key, gen_random_uuid());
    SELECT * INTO v_answer FROM redrive.enqueue_1(
        NEW.outbox, convert_to(NEW.payload::text, 'UTF8'), NEW.idempotency_key::text, NEW.tenant_id, NEW.event_type,
        p_order_by => NEW.order_by);
    NEW.id := v_answer.id;
    NEW.state := v_answer.state;
    NEW.created_at := redrive_tenant.time_of(v_answer.id);
    NEW.retry_count := 0;
    NEW.is_processed := v_answer.state NOT IN ('pending', 'leased', 'parked');
    NEW.dead_letter := false;
    RETURN NEW;
END $body$;
CREATE OR REPLACE TRIGGER insert_event INSTEAD OF INSERT ON redrive_tenant.outbox_messages
    FOR EACH ROW EXECUTE FUNCTION redrive_tenant.insert_event();

CREATE OR REPLACE FUNCTION redrive_tenant."InsertEvent"() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    INSERT INTO redrive_tenant.outbox_messages AS o (tenant_id, event_type, payload, idempotency_key, processed_at, is_processed,
                                                     retry_count, error, next_attempt_at, dead_letter)
    VALUES (NEW."TenantId", NEW."EventType", NEW."Payload", NEW."IdempotencyKey", NEW."ProcessedAt", NEW."IsProcessed",
            NEW."RetryCount", NEW."Error", NEW."NextAttemptAt", NEW."DeadLetter")
    RETURNING o.id, o.idempotency_key, o.created_at, o.is_processed, o.retry_count, o.dead_letter
         INTO NEW."Id", NEW."IdempotencyKey", NEW."CreatedAt", NEW."IsProcessed", NEW."RetryCount", NEW."DeadLetter";
    RETURN NEW;
END $body$;
CREATE OR REPLACE TRIGGER insert_event INSTEAD OF INSERT ON redrive_tenant."OutboxMessages"
    FOR EACH ROW EXECUTE FUNCTION redrive_tenant."InsertEvent"();
