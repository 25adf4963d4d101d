-- redrive: after states
-- The life of a delivery (R-07). mark_sent is the one place that writes notification_id, notified_at and `sent`, together, after the
-- provider has accepted; finish_job follows in the same transaction.

-- review_done: the result of llm is kept; returns the deliveries that are to be notified now. Again for the same job (a replay of the
-- whole job) it returns those that are not queued or sent yet.
-- Locks: the job. Relies on: job_message, delivery_job.
CREATE OR REPLACE FUNCTION redrive_reviews.review_done_1(
    p_message_id uuid, p_critic text, p_findings integer, p_now timestamptz DEFAULT NULL
) RETURNS TABLE (tenant text, changelist_id text, recipient text, review_version integer, provider text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
#variable_conflict use_column
DECLARE v_job redrive_reviews.job;
BEGIN
    UPDATE job j SET reviewed_at = coalesce(j.reviewed_at, redrive.allowed_now(p_now), clock_timestamp()), critic = p_critic,
                     findings = p_findings
     WHERE j.message_id = p_message_id RETURNING * INTO v_job;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'Message % belongs to no review.', p_message_id USING ERRCODE = '22023';
    END IF;
    RETURN QUERY SELECT d.tenant, d.changelist_id, d.recipient, d.review_version, d.provider
                   FROM delivery d WHERE d.job_id = v_job.job_id AND d.message_id IS NULL ORDER BY d.recipient COLLATE "C";
    PERFORM redrive_reviews.finish_job(v_job.job_id, p_now);
END $body$;

-- queued: the message that notifies a recipient. on_replay: what sending it again would do.
CREATE OR REPLACE FUNCTION redrive_reviews.queued_1(
    p_tenant text, p_changelist_id text, p_recipient text, p_review_version integer, p_message_id uuid, p_on_replay text,
    p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
BEGIN
    UPDATE delivery d SET message_id = p_message_id, status = 'queued', on_replay = p_on_replay
     WHERE d.tenant = p_tenant AND d.changelist_id = p_changelist_id AND d.recipient = p_recipient
       AND d.review_version = p_review_version;
    INSERT INTO delivery_message (message_id, tenant, changelist_id, recipient, review_version, created_at)
    VALUES (p_message_id, p_tenant, p_changelist_id, p_recipient, p_review_version,
            coalesce(redrive.allowed_now(p_now), clock_timestamp()))
    ON CONFLICT DO NOTHING;
END $body$;

-- delivery_of: the row that a message notifies, read again before every send.
CREATE OR REPLACE FUNCTION redrive_reviews.delivery_of_1(p_message_id uuid)
RETURNS TABLE (notification_id text, notified_at timestamptz, status text, has_evidence boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT d.notification_id, d.notified_at, d.status, d.evidence IS NOT NULL
                   FROM delivery_message m JOIN delivery d USING (tenant, changelist_id, recipient, review_version)
                  WHERE m.message_id = p_message_id;
END $body$;

-- mark_sent: the one write after acceptance. It keeps what an earlier acceptance has written.
-- Locks: the delivery, then its job. Relies on: the primary keys.
CREATE OR REPLACE FUNCTION redrive_reviews.mark_sent_1(
    p_message_id uuid, p_notification_id text, p_evidence json, p_now timestamptz DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
DECLARE v_now timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_job uuid;
BEGIN
    UPDATE delivery d
       SET notification_id = coalesce(p_notification_id, d.notification_id, p_message_id::text),
           notified_at = coalesce(d.notified_at, v_now), status = 'sent', evidence = p_evidence, error_class = NULL
      FROM delivery_message m
     WHERE m.message_id = p_message_id
       AND (d.tenant, d.changelist_id, d.recipient, d.review_version) = (m.tenant, m.changelist_id, m.recipient, m.review_version)
    RETURNING d.job_id INTO v_job;
    PERFORM redrive_reviews.finish_job(v_job, v_now);
END $body$;

-- mark_failed: the notification was given up without effect; an operator may go on. What is held says so by its message.
CREATE OR REPLACE FUNCTION redrive_reviews.mark_failed_1(p_message_id uuid, p_error_class text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
BEGIN
    UPDATE delivery d SET status = 'failed', error_class = p_error_class
      FROM delivery_message m
     WHERE m.message_id = p_message_id AND d.message_id = p_message_id AND d.notified_at IS NULL
       AND (d.tenant, d.changelist_id, d.recipient, d.review_version) = (m.tenant, m.changelist_id, m.recipient, m.review_version);
END $body$;

-- finish_job: succeeded once llm is settled and every required recipient is notified (R-08). The job is locked first, so that of two
-- deliveries that are settled at the same moment the second one sees the first. Its diff is not needed any more.
CREATE OR REPLACE FUNCTION redrive_reviews.finish_job(p_job_id uuid, p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE v_now timestamptz := coalesce(p_now, clock_timestamp());
BEGIN
    PERFORM 1 FROM redrive_reviews.job j WHERE j.job_id = p_job_id FOR NO KEY UPDATE;
    UPDATE redrive_reviews.job j SET succeeded_at = v_now
     WHERE j.job_id = p_job_id AND j.reviewed_at IS NOT NULL AND j.succeeded_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM redrive_reviews.delivery d
                        WHERE d.job_id = p_job_id AND d.required AND d.notified_at IS NULL);
    IF FOUND THEN
        DELETE FROM redrive_reviews.work w USING redrive_reviews.job j WHERE j.job_id = p_job_id AND w.message_id = j.message_id;
    END IF;
END $body$;
