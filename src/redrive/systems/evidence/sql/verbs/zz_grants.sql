-- redrive: after upload, upload_reads, schedule, gates, measures
-- Who may do what, by the engine's own roles (its zz_grants.sql). Producers upload; relays and workers attempt, record, schedule and notify;
-- people read.
REVOKE ALL ON SCHEMA redrive_evidence FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA redrive_evidence FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA redrive_evidence FROM PUBLIC, redrive_producer, redrive_relay, redrive_operator, redrive_viewer,
    redrive_auditor;
GRANT USAGE ON SCHEMA redrive_evidence TO redrive_producer, redrive_relay, redrive_operator, redrive_viewer, redrive_auditor;
-- An operator uploads over HTTP, in the tenant that the API has checked.
GRANT EXECUTE ON FUNCTION redrive_evidence.insert_upload_1, redrive_evidence.find_upload_1 TO redrive_producer, redrive_operator;
GRANT EXECUTE ON FUNCTION redrive_evidence.known_uploads_1 TO redrive_relay;
GRANT EXECUTE ON FUNCTION redrive_evidence.eligible_artifacts_1, redrive_evidence.begin_attempt_1, redrive_evidence.record_attempt_1,
    redrive_evidence.rebuild_rollups_1, redrive_evidence.schedule_retries_1, redrive_evidence.scheduler_ran_1,
    redrive_evidence.lock_job_1, redrive_evidence.open_jobs_1, redrive_evidence.tally_1, redrive_evidence.expire_1,
    redrive_evidence.pass_gate_1, redrive_evidence.keep_notice_1
    TO redrive_relay;
GRANT EXECUTE ON FUNCTION redrive_evidence.gauge_1 TO redrive_relay, redrive_operator;
-- An operator asks for retries of a job at once.
GRANT EXECUTE ON FUNCTION redrive_evidence.retry_job_1 TO redrive_operator;
GRANT EXECUTE ON FUNCTION redrive_evidence.error_category_of, redrive_evidence.may_retry, redrive_evidence.progress_of
    TO redrive_producer, redrive_relay, redrive_viewer, redrive_operator, redrive_auditor;
GRANT SELECT ON redrive_evidence.file_job_row, redrive_evidence.file_job_artifact, redrive_evidence.artifact_attempt,
    redrive_evidence.row_event, redrive_evidence.artifact_event, redrive_evidence.late_evidence, redrive_evidence.timeline
    TO redrive_viewer, redrive_operator, redrive_auditor;
-- Addresses are personal data (G-15): only operators read them.
GRANT SELECT ON redrive_evidence.file_job, redrive_evidence.notice TO redrive_operator;
GRANT SELECT (id, tenant, idempotency_key, merchant_id, archive_name, archive_sha256, archive_size_bytes, created_by, created_at, sealed_at,
              n1_sent_at, n2_sent_at, n2_forced, closed)
    ON redrive_evidence.file_job TO redrive_viewer, redrive_auditor;
GRANT SELECT (message_id, file_job_id, tenant, notice, channel, summary, created_at)
    ON redrive_evidence.notice TO redrive_viewer, redrive_auditor;

DO $row_security$
BEGIN
    PERFORM redrive.limit_rows(t, 'current_setting(''redrive.tenant'', true) IN (tenant, ''*'')')
       FROM unnest(ARRAY['file_job', 'file_job_row', 'file_job_artifact', 'artifact_attempt', 'row_event', 'artifact_event', 'late_evidence', 'notice'])
            AS u(name),
            to_regclass('redrive_evidence.' || u.name) AS t;
END $row_security$;
