-- category_of: the row of the failure table that an error class belongs to. The same as redrive.systems.reviews.taxonomy; a test compares
-- the two. Locks nothing.
CREATE OR REPLACE FUNCTION redrive_reviews.category_of(p_error_class text) RETURNS text LANGUAGE sql IMMUTABLE AS $body$
    SELECT CASE
        WHEN p_error_class IN ('CONNECTION_LOST', 'CONNECTION_REFUSED', 'CONNECT_TIMEOUT', 'DATABASE_UNREACHABLE', 'GATEWAY_LOST', 'HTTP_408', 'HTTP_502', 'HTTP_503', 'HTTP_504', 'NAME_NOT_RESOLVED', 'NETWORK_TIMEOUT', 'SMTP_421', 'SMTP_451', 'SMTP_CONNECTION_LOST', 'SMTP_REPLY_INVALID', 'SMTP_REPLY_TIMEOUT', 'SMTP_SERVER_DOWN', 'TIMEOUT') THEN 'network'
        WHEN p_error_class IN ('HTTP_429', 'RATE_LIMITED', 'SMTP_450', 'SMTP_452') THEN 'rate_limit'
        WHEN p_error_class IN ('ANSWER_INVALID', 'HTTP_500', 'UPSTREAM_INTERNAL') THEN 'upstream'
        WHEN p_error_class IN ('CONFLICT', 'HTTP_409') THEN 'conflict'
        WHEN p_error_class IN ('DIFF_EMPTY', 'DIFF_TOO_LARGE', 'HTTP_400', 'HTTP_422', 'PAYLOAD_INVALID', 'RECIPIENT_INVALID', 'SCHEMA_INVALID', 'SMTP_ADDRESS_INVALID', 'SMTP_HEADER_INVALID', 'SMTP_RECIPIENTS', 'SMTP_TOO_LARGE', 'SMTP_UTF8_UNSUPPORTED') THEN 'validation'
        WHEN p_error_class IN ('AUTH_DENIED', 'EGRESS_REFUSED', 'HTTP_401', 'HTTP_403', 'SMTP_LOGIN_REFUSED', 'SMTP_SENDER_REFUSED') THEN 'auth'
        WHEN p_error_class IN ('CHANNEL_GONE', 'COMMIT_UNKNOWN', 'HTTP_404', 'HTTP_410', 'NOT_FOUND', 'REPOSITORY_UNKNOWN', 'SMTP_RECIPIENT_REFUSED') THEN 'not_found'
        WHEN p_error_class IN ('CONTENT_REJECTED', 'SMTP_554') THEN 'policy'
        WHEN p_error_class IN ('ADVANCE_UNDECLARED', 'CONFIG_INVALID', 'CRASHED', 'RETURN_INVALID', 'STAGE_UNKNOWN', 'UNCLASSIFIED') THEN 'defect'
        ELSE 'other' END
$body$;
