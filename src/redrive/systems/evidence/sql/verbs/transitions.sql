-- The life of an artifact (E-09): the same edges as redrive.systems.evidence.transitions; a test compares the two.

CREATE OR REPLACE FUNCTION redrive_evidence.transitions()
RETURNS TABLE (from_attachment text, from_retry text, event text, to_attachment text, to_retry text) LANGUAGE sql IMMUTABLE AS $body$
    VALUES ('PENDING', 'PENDING', 'begun', 'PENDING', 'PENDING'),
           ('PENDING', 'PENDING', 'attached', 'ATTACHED', 'PENDING'),
           ('PENDING', 'PENDING', 'failed', 'FAILED', 'RETRY_FAILED'),
           ('PENDING', 'PENDING', 'gave_up', 'FAILED', 'PERMANENT_FAILED'),
           ('FAILED', 'RETRY_FAILED', 'requeued', 'FAILED', 'RETRY_SCHEDULED'),
           ('FAILED', 'RETRY_FAILED', 'gave_up', 'FAILED', 'PERMANENT_FAILED'),
           ('FAILED', 'RETRY_SCHEDULED', 'requeued', 'FAILED', 'RETRY_SCHEDULED'),
           ('FAILED', 'RETRY_SCHEDULED', 'begun', 'FAILED', 'RETRYING'),
           ('FAILED', 'RETRY_SCHEDULED', 'gave_up', 'FAILED', 'PERMANENT_FAILED'),
           ('FAILED', 'RETRYING', 'attached', 'ATTACHED', 'RETRY_SUCCESS'),
           ('FAILED', 'RETRYING', 'failed', 'FAILED', 'RETRY_FAILED'),
           ('FAILED', 'RETRYING', 'gave_up', 'FAILED', 'PERMANENT_FAILED')
$body$;

-- after: the status that an event leads to. Raises where it cannot happen.
CREATE OR REPLACE FUNCTION redrive_evidence.after(
    p_attachment text, p_retry text, p_event text, OUT attachment text, OUT retry text
) LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    SELECT t.to_attachment, t.to_retry INTO attachment, retry FROM redrive_evidence.transitions() t
     WHERE t.from_attachment = p_attachment AND t.from_retry = p_retry AND t.event = p_event;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'an artifact that is %/% cannot be %.', p_attachment, p_retry, p_event USING ERRCODE = '55000';
    END IF;
END $body$;

-- A change of an artifact that is no edge is refused, also by the owner of the tables, and so is every change of a job that is closed.
CREATE OR REPLACE FUNCTION redrive_evidence.check_artifact() RETURNS trigger
LANGUAGE plpgsql SET search_path = redrive_evidence, pg_temp AS $body$
BEGIN
    IF TG_OP = 'INSERT' AND (NEW.attachment_status, NEW.retry_status) <> ('PENDING', 'PENDING') THEN
        RAISE EXCEPTION 'an artifact begins as PENDING/PENDING.' USING ERRCODE = '55000';
    END IF;
    IF TG_OP = 'UPDATE' AND (OLD.attachment_status, OLD.retry_status) <> (NEW.attachment_status, NEW.retry_status)
       AND NOT EXISTS (SELECT 1 FROM redrive_evidence.transitions() t
                        WHERE t.from_attachment = OLD.attachment_status AND t.from_retry = OLD.retry_status
                          AND t.to_attachment = NEW.attachment_status AND t.to_retry = NEW.retry_status) THEN
        RAISE EXCEPTION 'an artifact that is %/% cannot become %/%.', OLD.attachment_status, OLD.retry_status, NEW.attachment_status,
            NEW.retry_status USING ERRCODE = '55000';
    END IF;
    PERFORM redrive_evidence.refuse_closed(NEW.file_job_id);
    RETURN NEW;
END $body$;

CREATE OR REPLACE FUNCTION redrive_evidence.refuse_closed(p_file_job_id uuid) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    IF EXISTS (SELECT 1 FROM redrive_evidence.file_job j WHERE j.id = p_file_job_id AND j.closed) THEN
        RAISE EXCEPTION 'upload % is closed: its final notice was sent. New evidence is a new upload.', p_file_job_id
            USING ERRCODE = '55000';
    END IF;
END $body$;

-- New rows and artifacts are refused once the job is sealed.
CREATE OR REPLACE FUNCTION redrive_evidence.refuse_sealed() RETURNS trigger
LANGUAGE plpgsql SET search_path = redrive_evidence, pg_temp AS $body$
BEGIN
    IF EXISTS (SELECT 1 FROM file_job j WHERE j.id = NEW.file_job_id AND j.sealed_at IS NOT NULL) THEN
        RAISE EXCEPTION 'upload % is sealed: nothing is added to it. New evidence is a new upload.', NEW.file_job_id USING ERRCODE = '55000';
    END IF;
    RETURN NEW;
END $body$;

-- A job that is closed stays as it is: no notice is taken back, and nothing is sent again.
CREATE OR REPLACE FUNCTION redrive_evidence.check_job() RETURNS trigger
LANGUAGE plpgsql SET search_path = redrive_evidence, pg_temp AS $body$
BEGIN
    IF OLD.closed OR (OLD.sealed_at IS NOT NULL AND NEW.sealed_at IS DISTINCT FROM OLD.sealed_at)
       OR (OLD.n1_sent_at IS NOT NULL AND NEW.n1_sent_at IS DISTINCT FROM OLD.n1_sent_at) THEN
        RAISE EXCEPTION 'upload % is not opened again, and no notice of it is sent twice.', OLD.id USING ERRCODE = '55000';
    END IF;
    RETURN NEW;
END $body$;

CREATE OR REPLACE TRIGGER check_artifact BEFORE INSERT OR UPDATE ON redrive_evidence.file_job_artifact
    FOR EACH ROW EXECUTE FUNCTION redrive_evidence.check_artifact();
CREATE OR REPLACE TRIGGER refuse_sealed BEFORE INSERT ON redrive_evidence.file_job_artifact
    FOR EACH ROW EXECUTE FUNCTION redrive_evidence.refuse_sealed();
CREATE OR REPLACE TRIGGER refuse_sealed BEFORE INSERT ON redrive_evidence.file_job_row
    FOR EACH ROW EXECUTE FUNCTION redrive_evidence.refuse_sealed();
CREATE OR REPLACE TRIGGER check_job BEFORE UPDATE ON redrive_evidence.file_job
    FOR EACH ROW EXECUTE FUNCTION redrive_evidence.check_job();
