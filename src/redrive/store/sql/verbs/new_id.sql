-- new_id: a UUIDv7 by the server's clock on every supported version.
-- id_floor: the smallest id of a moment; ranges of ids are ranges of time.
DO $choose$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        CREATE OR REPLACE FUNCTION redrive.new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
        AS 'SELECT uuidv7()';
    ELSE
        CREATE OR REPLACE FUNCTION redrive.new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
        AS $body$
            SELECT encode(set_bit(set_bit(
                overlay(uuid_send(gen_random_uuid())
                        PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                        FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
        $body$;
    END IF;
END
$choose$;

CREATE OR REPLACE FUNCTION redrive.id_floor(p_at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT (lpad(to_hex(floor(extract(epoch FROM p_at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$body$;
