-- publish_options_1: a relay says by which options it runs an outbox. Nothing is written where they are as they were.
-- Locks: the outbox's row, where they differ. Relies on: its primary key.
CREATE OR REPLACE FUNCTION redrive_tenant.publish_options_1(p_destination text, p_options json, p_now timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_tenant, pg_temp AS $body$
BEGIN
    IF NOT starts_with(p_destination, 'tenant.') THEN
        RAISE EXCEPTION 'destination % is no outbox: its name must begin with "tenant.".', p_destination USING ERRCODE = '22023';
    END IF;
    INSERT INTO redrive_tenant.outbox AS o (destination, options, published_at)
    VALUES (p_destination, p_options, coalesce(p_now, clock_timestamp()))
    ON CONFLICT (destination) DO UPDATE SET options = excluded.options, published_at = excluded.published_at
     WHERE o.options::text IS DISTINCT FROM excluded.options::text;
    RETURN FOUND;
END $body$;
