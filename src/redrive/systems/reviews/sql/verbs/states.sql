-- What a job and a delivery are, from the engine's tables and ours in one snapshot, so that an operator's act shows at once.

-- state_of_message: pending, leased, dead, held, unrecorded, or how it was closed; delivered where its history was retired.
CREATE OR REPLACE FUNCTION redrive_reviews.state_of_message(p_id uuid) RETURNS text LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN CASE WHEN p_id IS NOT NULL
                THEN coalesce((SELECT k.reason FROM redrive.parked k WHERE k.id = p_id), redrive.state_of(p_id), 'delivered') END;
END $body$;

-- state_of_delivery: waiting (for llm), queued, sent, failed (an operator may go on), held (it may have been sent).
-- notified_at decides: what is marked as sent is sent until reconciliation says otherwise. It takes columns and not the row, because a
-- viewer may not read the recipient.
CREATE OR REPLACE FUNCTION redrive_reviews.state_of_delivery(p_notified_at timestamptz, p_message_id uuid, p_status text) RETURNS text
LANGUAGE plpgsql STABLE AS $body$
DECLARE v_message text;
BEGIN
    IF p_notified_at IS NOT NULL THEN RETURN 'sent'; END IF;
    IF p_message_id IS NULL OR p_status = 'held' THEN RETURN p_status; END IF;
    v_message := redrive_reviews.state_of_message(p_message_id);
    RETURN CASE WHEN v_message IN ('pending', 'leased', 'delivered') THEN 'queued'
                WHEN v_message IN ('held', 'unrecorded') THEN 'held'
                ELSE 'failed' END;
END $body$;

-- state_of_job: succeeded; in_progress while something moves by itself; else retryable_failed, and an operator may go on (R-12).
CREATE OR REPLACE FUNCTION redrive_reviews.state_of_job(p_job redrive_reviews.job) RETURNS text LANGUAGE plpgsql STABLE AS $body$
BEGIN
    IF p_job.succeeded_at IS NOT NULL THEN RETURN 'succeeded'; END IF;
    IF p_job.reviewed_at IS NULL THEN
        RETURN CASE WHEN redrive_reviews.state_of_message(p_job.message_id) IN ('pending', 'leased') THEN 'in_progress'
                    ELSE 'retryable_failed' END;
    END IF;
    RETURN CASE WHEN EXISTS (SELECT 1 FROM redrive_reviews.delivery d
                              WHERE d.job_id = p_job.job_id AND d.required
                                AND redrive_reviews.state_of_delivery(d.notified_at, d.message_id, d.status) IN ('failed', 'held'))
                THEN 'retryable_failed' ELSE 'in_progress' END;
END $body$;
