-- are_headers: text to text, at most 50, names of 1 to 100 characters, no control characters; as redrive.produce has it. A lone
-- surrogate or a NUL is refused by PostgreSQL itself.
CREATE OR REPLACE FUNCTION redrive.are_headers(p_headers json) RETURNS boolean
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    IF octet_length(p_headers::text) > 8192 OR json_typeof(p_headers) <> 'object' THEN RETURN false; END IF;
    RETURN NOT EXISTS (SELECT 1 FROM json_each(p_headers) AS h (name, value) WHERE json_typeof(h.value) <> 'string')
       AND (SELECT count(*) <= 50 AND coalesce(bool_and(char_length(h.name) BETWEEN 1 AND 100
                                                        AND h.name || h.value !~ '[\x01-\x1f\x7f]'), true)
              FROM json_each_text(p_headers) AS h (name, value));
END $body$;

-- is_moment: a time that every language can represent: of the years 1 to 9999.
CREATE OR REPLACE FUNCTION redrive.is_moment(p_at timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $body$
    SELECT p_at >= '0001-01-01 00:00:00+00'::timestamptz AND p_at < '10000-01-01 00:00:00+00'::timestamptz
$body$;

-- allowed_now: the time that a caller gave, for tests and for our own verbs; an application may not say what time it is, beyond
-- what the clock said in this very statement (redrive.produce looks there whether a message has expired).
-- Judged by the role that called, which inside a verb is not the current one.
CREATE OR REPLACE FUNCTION redrive.allowed_now(p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $body$
DECLARE v_caller name := coalesce(nullif(current_setting('role'), 'none')::name, session_user);
BEGIN
    IF p_now IS NULL THEN RETURN NULL; END IF;
    IF NOT (p_now BETWEEN statement_timestamp() - interval '1 second' AND clock_timestamp() + interval '1 second'
            OR pg_has_role(v_caller, current_user, 'usage') OR pg_has_role(v_caller, 'redrive_relay', 'usage')
            OR pg_has_role(v_caller, 'redrive_operator', 'usage')) THEN
        RAISE EXCEPTION 'p_now is the clock of tests and of the engine; % may not set it.', v_caller USING ERRCODE = '42501';
    END IF;
    IF NOT redrive.is_moment(p_now) THEN
        RAISE EXCEPTION 'p_now is %; it must be of the years 1 to 9999.', p_now USING ERRCODE = '22023';
    END IF;
    RETURN p_now;
END $body$;

-- is_within_bounds: all limits of a message in one expression, which the planner inlines; true or not.
-- refuse_message: says which limit it was, with the value and the bound (G-19). redrive.produce checks the same before it
-- calls; this is for every other language.
CREATE OR REPLACE FUNCTION redrive.is_within_bounds(
    p_destination text, p_body bytea, p_key text, p_tenant text, p_kind text, p_content_type text, p_headers json,
    p_due_at timestamptz, p_expires_at timestamptz, p_level smallint, p_order_by text, p_token_seed text, p_now timestamptz
) RETURNS boolean LANGUAGE sql STABLE AS $body$
    SELECT char_length(p_destination) BETWEEN 1 AND 100
       AND octet_length(p_body) <= 262144
       AND (p_key IS NULL OR char_length(p_key) BETWEEN 1 AND 1000)
       AND (p_order_by IS NULL OR char_length(p_order_by) BETWEEN 1 AND 200)
       AND (p_token_seed IS NULL OR char_length(p_token_seed) BETWEEN 1 AND 1000)
       AND char_length(p_tenant) BETWEEN 1 AND 100
       AND char_length(p_kind) <= 100
       AND char_length(p_content_type) BETWEEN 1 AND 100
       AND p_content_type !~ '[\x01-\x1f\x7f]'
       AND p_destination !~ '^[\x09-\x0d\x1c-\x20]|[\x09-\x0d\x1c-\x20]$'
       AND p_tenant !~ '^[\x09-\x0d\x1c-\x20]|[\x09-\x0d\x1c-\x20]$'
       AND p_kind !~ '^[\x09-\x0d\x1c-\x20]|[\x09-\x0d\x1c-\x20]$'
       AND (p_headers IS NULL OR redrive.are_headers(p_headers))
       AND p_level BETWEEN 0 AND 2
       AND (p_due_at IS NULL OR redrive.is_moment(p_due_at))
       AND (p_expires_at IS NULL OR (redrive.is_moment(p_expires_at) AND p_expires_at > greatest(p_now, p_due_at)))
$body$;

CREATE OR REPLACE FUNCTION redrive.refuse_message(
    p_destination text, p_body bytea, p_key text, p_tenant text, p_kind text, p_content_type text, p_headers json,
    p_due_at timestamptz, p_expires_at timestamptz, p_level smallint, p_order_by text, p_token_seed text, p_now timestamptz
) RETURNS void LANGUAGE plpgsql STABLE AS $body$
DECLARE v_why text := CASE
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
            WHEN p_content_type ~ '[\x01-\x1f\x7f]' THEN 'content_type has control characters, which are not allowed.'
            WHEN p_destination ~ '^[\x09-\x0d\x1c-\x20]|[\x09-\x0d\x1c-\x20]$'
                THEN format('destination is %L; it must not begin or end with white space.', p_destination)
            WHEN p_tenant ~ '^[\x09-\x0d\x1c-\x20]|[\x09-\x0d\x1c-\x20]$'
                THEN format('tenant is %L; it must not begin or end with white space.', p_tenant)
            WHEN p_kind ~ '^[\x09-\x0d\x1c-\x20]|[\x09-\x0d\x1c-\x20]$'
                THEN format('kind is %L; it must not begin or end with white space.', p_kind)
            WHEN NOT redrive.are_headers(p_headers)
                THEN 'headers must map text to text: at most 50, names of 1 to 100 characters, no control characters.'
            WHEN p_level IS NULL OR p_level NOT BETWEEN 0 AND 2
                THEN format('level is %s; it must be 0 (high), 1 (normal) or 2 (low).', coalesce(p_level::text, 'missing'))
            WHEN NOT redrive.is_moment(p_due_at) THEN format('due_at is %s; it must be a finite time of the years 1 to 9999.', p_due_at)
            WHEN NOT redrive.is_moment(p_expires_at)
                THEN format('expires_at is %s; it must be a finite time of the years 1 to 9999.', p_expires_at)
            WHEN p_expires_at <= p_now THEN format('expires_at is %s, which is not after now (%s).', p_expires_at, p_now)
            ELSE format('expires_at is %s, which is not after due_at (%s): it could never be sent.', p_expires_at, p_due_at)
        END;
BEGIN
    RAISE EXCEPTION '%', v_why USING ERRCODE = '22023';
END $body$;
