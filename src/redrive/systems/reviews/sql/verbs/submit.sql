-- redrive: after states
-- submit: a review, its recipients and its message, in the caller's transaction (R-06). One statement; nothing is raised for what a
-- caller may get wrong, so that the transaction stays usable:
--   new                   the job exists now, and its message is enqueued
--   duplicate             the key was used before: the first job; request_differs where that was another request
--   same_version          another key asked for this version: the job that has it; request_differs as above
--   review_in_progress    an earlier version of the changelist is under way; job_id is that one
--   rerun_not_requested   the changelist was reviewed, and p_rerun does not ask for another version
--   version_not_higher    p_rerun asks for a version that is not above the latest; job_id is the latest
--   nothing_to_rerun      p_rerun asks for another version of a changelist that was never submitted
-- p_recipients: [{"recipient", "provider", "required"}], without repeats.
-- Locks: the changelist (submissions of one changelist go one by one), then the unique key of the job, then as enqueue does.
-- Relies on: job_idempotency_key, job_changelist_version.
CREATE OR REPLACE FUNCTION redrive_reviews.submit_1(
    p_tenant text, p_key text, p_changelist_id text, p_review_version integer, p_repository text, p_base_commit text,
    p_head_commit text, p_recipients json, p_request_hash bytea, p_rerun boolean, p_destination text, p_headers json DEFAULT NULL,
    p_now timestamptz DEFAULT NULL,
    OUT result text, OUT job_id uuid, OUT changelist_id text, OUT review_version integer, OUT state text, OUT request_differs boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
#variable_conflict use_column
DECLARE v_now      timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_latest   integer;
        v_known    redrive_reviews.job;
        v_message  record;
        v_body     bytea;
BEGIN
    -- The key first: a repeated request gets its answer, whatever has become of the changelist since.
    SELECT * INTO v_known FROM job j WHERE j.tenant = p_tenant AND j.idempotency_key = p_key;
    IF FOUND THEN
        result := 'duplicate';
    ELSE
        INSERT INTO changelist AS c (tenant, changelist_id, latest_version) VALUES (p_tenant, p_changelist_id, 0)
        ON CONFLICT DO NOTHING;
        SELECT c.latest_version INTO STRICT v_latest FROM changelist c
         WHERE c.tenant = p_tenant AND c.changelist_id = p_changelist_id FOR UPDATE;
        SELECT * INTO v_known FROM job j
         WHERE j.tenant = p_tenant AND j.changelist_id = p_changelist_id AND j.review_version = p_review_version;
        IF FOUND THEN
            -- The one with this key may have committed while we waited for the changelist.
            result := CASE WHEN v_known.idempotency_key = p_key THEN 'duplicate' ELSE 'same_version' END;
        ELSIF v_latest > 0 THEN
            SELECT * INTO STRICT v_known FROM job j
             WHERE j.tenant = p_tenant AND j.changelist_id = p_changelist_id AND j.review_version = v_latest;
            result := CASE WHEN p_review_version < v_latest THEN 'version_not_higher'
                           WHEN redrive_reviews.state_of_job(v_known) = 'in_progress' THEN 'review_in_progress'
                           WHEN NOT p_rerun THEN 'rerun_not_requested' END;
        ELSIF p_rerun THEN
            result := 'nothing_to_rerun';
        END IF;
    END IF;
    IF result IS NULL THEN
        job_id := redrive.new_id();
        v_body := convert_to(json_build_object(
            'base_commit', p_base_commit, 'changelist_id', p_changelist_id, 'head_commit', p_head_commit, 'job_id', job_id,
            'repository', p_repository, 'review_version', p_review_version)::text, 'UTF8');
        -- The job goes first: with the key of another changelist's job nothing is enqueued.
        INSERT INTO job (job_id, tenant, idempotency_key, changelist_id, review_version, repository, base_commit, head_commit,
                         request_hash, message_id, created_at)
        VALUES (job_id, p_tenant, p_key, p_changelist_id, p_review_version, p_repository, p_base_commit, p_head_commit,
                p_request_hash, job_id, v_now)
        ON CONFLICT ON CONSTRAINT job_idempotency_key DO NOTHING;
        IF FOUND THEN
            SELECT * INTO STRICT v_message
              FROM redrive.enqueue_internal(p_destination, v_body, 'review:' || job_id, p_tenant, 'review', 'application/json',
                                            p_headers, NULL, NULL, 1::smallint, NULL, v_now, NULL) e;
            UPDATE job j SET message_id = v_message.id WHERE j.job_id = submit_1.job_id;
            UPDATE changelist c SET latest_version = p_review_version
             WHERE c.tenant = p_tenant AND c.changelist_id = p_changelist_id;
            INSERT INTO delivery (tenant, changelist_id, recipient, review_version, job_id, provider, required)
            SELECT p_tenant, p_changelist_id, r.recipient, p_review_version, submit_1.job_id, r.provider, r.required
              FROM json_to_recordset(p_recipients) AS r(recipient text, provider text, required boolean);
            result := 'new';
            changelist_id := p_changelist_id;
            review_version := p_review_version;
            state := 'in_progress';
            request_differs := false;
            RETURN;
        END IF;
        SELECT * INTO STRICT v_known FROM job j WHERE j.tenant = p_tenant AND j.idempotency_key = p_key;
        result := 'duplicate';
    END IF;
    -- What was refused leaves no row behind; only we hold the changelist.
    DELETE FROM changelist c WHERE c.tenant = p_tenant AND c.changelist_id = p_changelist_id AND c.latest_version = 0;
    job_id := v_known.job_id;
    changelist_id := v_known.changelist_id;
    review_version := v_known.review_version;
    state := redrive_reviews.state_of_job(v_known);
    request_differs := v_known.request_hash IS DISTINCT FROM p_request_hash;
END $body$;

-- earlier_2: the newest version of a changelist below p_review_version, with its recipients: what a rerun repeats, also when it is asked
-- for again after a later one. Where none is below, the newest.
CREATE OR REPLACE FUNCTION redrive_reviews.earlier_2(
    p_tenant text, p_changelist_id text, p_review_version integer, OUT repository text, OUT base_commit text, OUT head_commit text, OUT review_version integer,
    OUT recipients json
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    SELECT j.repository, j.base_commit, j.head_commit, j.review_version,
           (SELECT json_agg(json_build_object('recipient', d.recipient, 'provider', d.provider, 'required', d.required)
                            ORDER BY d.recipient COLLATE "C")
              FROM delivery d WHERE d.job_id = j.job_id)
      INTO repository, base_commit, head_commit, review_version, recipients
      FROM job j WHERE j.tenant = p_tenant AND j.changelist_id = p_changelist_id
     ORDER BY (j.review_version < p_review_version) DESC, j.review_version DESC LIMIT 1;
END $body$;

-- earlier_1: for producers that do not say which version they ask for.
CREATE OR REPLACE FUNCTION redrive_reviews.earlier_1(
    p_tenant text, p_changelist_id text, OUT repository text, OUT base_commit text, OUT head_commit text, OUT review_version integer,
    OUT recipients json
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
BEGIN
    SELECT * INTO repository, base_commit, head_commit, review_version, recipients
      FROM redrive_reviews.earlier_2(p_tenant, p_changelist_id, NULL);
END $body$;
