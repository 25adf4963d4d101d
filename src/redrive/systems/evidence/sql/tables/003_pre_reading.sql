-- For those who read: the timeline of a job, and the measures of files that are settled.
CREATE INDEX row_event_job ON redrive_evidence.row_event (file_job_id, message_id);
CREATE INDEX artifact_attempt_job ON redrive_evidence.artifact_attempt (file_job_id, message_id);
CREATE INDEX artifact_event_job ON redrive_evidence.artifact_event (file_job_id, message_id);
CREATE INDEX artifact_given_up ON redrive_evidence.file_job_artifact (attachment_error_code) WHERE retry_status = 'PERMANENT_FAILED';
CREATE INDEX artifact_settled ON redrive_evidence.file_job_artifact (updated_at)
    WHERE attachment_status = 'ATTACHED' OR retry_status = 'PERMANENT_FAILED';
