-- Older signatures had no p_token_seed.
DROP FUNCTION IF EXISTS redrive.is_within_bounds(text, bytea, text, text, text, text, json, timestamptz, timestamptz, smallint, text,
                                                 timestamptz);
DROP FUNCTION IF EXISTS redrive.refuse_message(text, bytea, text, text, text, text, json, timestamptz, timestamptz, smallint, text,
                                               timestamptz);
-- is_within_bounds: all limits of a message in one expression, which the planner inlines; true or not.
-- refuse_message: says which limit it was, with the value and the bound (G-19). redrive.produce checks the same before it
-- calls; this is for every other language.
CREATE OR REPLACE FUNCTION redrive.is_within_bounds(
    p_destination text, p_body bytea, p_key text, p_tenant text, p_kind text, p_content_type text, p_headers json,
    p_due_at timestamptz, p_expires_at timestamptz, p_level smallint, p_order_by text, p_token_seed text,
    p_now timestamptz
) RETURNS boolean LANGUAGE sql STABLE
AS $body$
    SELECT char_length(p_destination) BETWEEN 1 AND 100
       AND octet_length(p_body) <= 262144
       AND (p_key IS NULL OR char_length(p_key) BETWEEN 1 AND 1000)
       AND (p_order_by IS NULL OR char_length(p_order_by) BETWEEN 1 AND 200)
       AND (p_token_seed IS NULL OR char_length(p_token_seed) BETWEEN 1 AND 1000)
       AND char_length(p_tenant) BETWEEN 1 AND 100
       AND char_length(p_kind) <= 100
       AND char_length(p_content_type) BETWEEN 1 AND 100
       AND (p_headers IS NULL OR octet_length(p_headers::text) <= 8192)
       AND p_level BETWEEN 0 AND 2
       AND (p_due_at IS NULL OR isfinite(p_due_at))
       AND (p_expires_at IS NULL OR (isfinite(p_expires_at) AND p_expires_at > greatest(p_now, p_due_at)))
$body$;

CREATE OR REPLACE FUNCTION redrive.refuse_message(
    p_destination text, p_body bytea, p_key text, p_tenant text, p_kind text, p_content_type text, p_headers json,
    p_due_at timestamptz, p_expires_at timestamptz, p_level smallint, p_order_by text, p_token_seed text,
    p_now timestamptz
) RETURNS void LANGUAGE plpgsql STABLE
AS $body$
DECLARE
    v_why text := CASE
        WHEN coalesce(char_length(p_destination), 0) NOT BETWEEN 1 AND 100
            THEN format('destination has %s characters; it must have 1 to 100.', coalesce(char_length(p_destination), 0))
        WHEN p_body IS NULL THEN 'body is missing.'
        WHEN octet_length(p_body) > 262144
            THEN format('body has %s bytes; at most 262144 are allowed.', octet_length(p_body))
        WHEN char_length(p_key) NOT BETWEEN 1 AND 1000
            THEN format('key has %s characters; it must have 1 to 1000, or be absent.', char_length(p_key))
        WHEN char_length(p_order_by) NOT BETWEEN 1 AND 200
            THEN format('order_by has %s characters; it must have 1 to 200, or be absent.', char_length(p_order_by))
        WHEN char_length(p_token_seed) NOT BETWEEN 1 AND 1000
            THEN format('token_seed has %s characters; it must have 1 to 1000, or be absent.', char_length(p_token_seed))
        WHEN coalesce(char_length(p_tenant), 0) NOT BETWEEN 1 AND 100
            THEN format('tenant has %s characters; it must have 1 to 100.', coalesce(char_length(p_tenant), 0))
        WHEN p_kind IS NULL OR char_length(p_kind) > 100
            THEN format('kind has %s characters; at most 100 are allowed.', coalesce(char_length(p_kind)::text, 'no'))
        WHEN coalesce(char_length(p_content_type), 0) NOT BETWEEN 1 AND 100
            THEN format('content_type has %s characters; it must have 1 to 100.', coalesce(char_length(p_content_type), 0))
        WHEN octet_length(p_headers::text) > 8192
            THEN format('headers have %s bytes; at most 8192 are allowed.', octet_length(p_headers::text))
        WHEN p_level IS NULL OR p_level NOT BETWEEN 0 AND 2
            THEN format('level is %s; it must be 0 (high), 1 (normal) or 2 (low).', coalesce(p_level::text, 'missing'))
        WHEN NOT isfinite(p_due_at) THEN format('due_at is %s; it must be a finite time.', p_due_at)
        WHEN NOT isfinite(p_expires_at) THEN format('expires_at is %s; it must be a finite time.', p_expires_at)
        WHEN p_expires_at <= p_now THEN format('expires_at is %s, which is not after now (%s).', p_expires_at, p_now)
        ELSE format('expires_at is %s, which is not after due_at (%s): it could never be sent.', p_expires_at, p_due_at)
    END;
BEGIN
    RAISE EXCEPTION '%', v_why USING ERRCODE = '22023';
END
$body$;
