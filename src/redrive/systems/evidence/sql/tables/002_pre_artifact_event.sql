-- The result events of an artifact: the link from an artifact to the engine's message, as row_event is for requests.
CREATE TABLE redrive_evidence.artifact_event (
    message_id  uuid        PRIMARY KEY,
    artifact_id uuid        NOT NULL REFERENCES redrive_evidence.file_job_artifact,
    file_job_id uuid        NOT NULL,
    tenant      text        NOT NULL,
    event_type  text        NOT NULL,
    status      varchar(20) NOT NULL,
    error_code  varchar(64),
    occurred_at timestamptz NOT NULL
);
CREATE INDEX artifact_event_artifact ON redrive_evidence.artifact_event (artifact_id);
