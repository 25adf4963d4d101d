-- The work of a review, by its message. keep_diff and keep_findings write the same again for another attempt.
-- Locks: the row. Relies on: the primary key.
CREATE OR REPLACE FUNCTION redrive_reviews.keep_diff_1(p_message_id uuid, p_diff text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, pg_temp AS $body$
BEGIN
    INSERT INTO work (message_id, diff) VALUES (p_message_id, p_diff)
    ON CONFLICT (message_id) DO UPDATE SET diff = excluded.diff;
END $body$;

CREATE OR REPLACE FUNCTION redrive_reviews.diff_of_1(p_message_id uuid) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_reviews, pg_temp AS $body$
BEGIN
    RETURN (SELECT w.diff FROM work w WHERE w.message_id = p_message_id);
END $body$;

CREATE OR REPLACE FUNCTION redrive_reviews.keep_findings_1(p_message_id uuid, p_findings json) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, pg_temp AS $body$
BEGIN
    INSERT INTO work (message_id, findings) VALUES (p_message_id, p_findings)
    ON CONFLICT (message_id) DO UPDATE SET findings = excluded.findings;
END $body$;

CREATE OR REPLACE FUNCTION redrive_reviews.findings_of_1(p_message_id uuid) RETURNS json
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_reviews, pg_temp AS $body$
BEGIN
    RETURN (SELECT w.findings FROM work w WHERE w.message_id = p_message_id);
END $body$;
