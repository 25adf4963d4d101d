-- The tables of evidence: an uploaded archive (file_job), its rows (one a dispute case), their files (file_job_artifact), and every attempt to
-- attach one. Columns, types and indexes are those of the document; sql/verbs are the only writers.
CREATE SCHEMA redrive_evidence;

-- error_category_of, may_retry: the taxonomy (redrive.systems.evidence.taxonomy; a test compares the two). Generated columns use them, so a
-- changed taxonomy needs a migration that rewrites file_job_artifact.
CREATE FUNCTION redrive_evidence.error_category_of(p_code text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE
        WHEN p_code IS NULL THEN NULL
        WHEN p_code IN ('ATTACHMENT_API_TIMEOUT', 'NETWORK_TIMEOUT', '408', '429', '502', '503', '504', 'CONNECTION_LOST',
                        'CONNECTION_REFUSED', 'CONNECT_TIMEOUT', 'GATEWAY_LOST', 'NAME_NOT_RESOLVED', 'TIMEOUT') THEN 'NETWORK'
        WHEN p_code IN ('CORRUPTED_FILE', 'INVALID_FORMAT', 'S3_NOT_FOUND') THEN 'DATA'
        WHEN p_code IN ('401', '403', 'UNAUTHORIZED', 'CASE_NOT_FOUND') THEN 'AUTH'
        ELSE 'SYSTEM' END
$body$;
CREATE FUNCTION redrive_evidence.may_retry(p_code text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT p_code IS NOT NULL AND redrive_evidence.error_category_of(p_code) IN ('NETWORK', 'SYSTEM')
       AND p_code NOT IN ('NOT_ATTEMPTED', 'OUTCOME_UNKNOWN')
$body$;

-- One upload. sealed_at: no artifact is added any more. n1_sent_at, n2_sent_at: when the notice was enqueued, in that transaction.
-- notify_mail, notify_webhook: where the two notices go; NULL = not there. n1_due_at: when untried artifacts are given up.
-- n2_due_at: when everything that is still open is given up. late_evidence counts what was attached after that.
CREATE TABLE redrive_evidence.file_job (
    id                 uuid        PRIMARY KEY,
    tenant             text        NOT NULL,
    idempotency_key    text        NOT NULL,
    merchant_id        text        NOT NULL,
    notify_mail        text,
    notify_webhook     text,
    archive_name       text        NOT NULL,
    archive_sha256     text        NOT NULL,
    archive_size_bytes bigint      NOT NULL,
    created_by         text        NOT NULL DEFAULT current_user,
    created_at         timestamptz NOT NULL,
    sealed_at          timestamptz,
    n1_sent_at         timestamptz,
    n2_sent_at         timestamptz,
    n2_forced          boolean     NOT NULL DEFAULT false,
    closed             boolean     NOT NULL GENERATED ALWAYS AS (n2_sent_at IS NOT NULL) STORED,
    CONSTRAINT file_job_idempotency_key UNIQUE (tenant, idempotency_key),
    CONSTRAINT idempotency_key_has_1_to_500_characters CHECK (char_length(idempotency_key) BETWEEN 1 AND 500),
    CONSTRAINT merchant_id_has_1_to_200_characters CHECK (char_length(merchant_id) BETWEEN 1 AND 200),
    CONSTRAINT archive_sha256_is_hexadecimal CHECK (archive_sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT n2_needs_n1 CHECK (n2_sent_at IS NULL OR n1_sent_at IS NOT NULL),
    CONSTRAINT n1_needs_the_seal CHECK (n1_sent_at IS NULL OR sealed_at IS NOT NULL)
);
-- What the gates look at: small whatever the history.
CREATE INDEX file_job_open ON redrive_evidence.file_job (id) WHERE n2_sent_at IS NULL;
CREATE INDEX file_job_n2 ON redrive_evidence.file_job (n2_sent_at) WHERE n2_sent_at IS NOT NULL;

-- One dispute case of an upload. row_number: the line of the CSV. The six roll-ups follow from the artifacts, in the same transaction.
CREATE TABLE redrive_evidence.file_job_row (
    id                      uuid        PRIMARY KEY,
    file_job_id             uuid        NOT NULL REFERENCES redrive_evidence.file_job,
    tenant                  text        NOT NULL,
    row_number              integer     NOT NULL,
    case_id                 uuid        NOT NULL,
    created_at              timestamptz NOT NULL,
    evidence_count          integer     DEFAULT 0,
    evidence_attached_count integer     DEFAULT 0,
    evidence_failed_count   integer     DEFAULT 0,
    evidence_status         varchar(20) DEFAULT 'PENDING',
    evidence_failed_files   jsonb,
    evidence_completed_at   timestamptz,
    CONSTRAINT file_job_row_number UNIQUE (file_job_id, row_number),
    CONSTRAINT evidence_status_is_known CHECK (evidence_status IN ('PENDING', 'COMPLETED', 'PARTIALLY_FAILED', 'FAILED'))
);
CREATE INDEX file_job_row_case ON redrive_evidence.file_job_row (case_id);

-- One file. attempt_count: attempts with an outcome, the first included. open_attempt: the number of the one that is under way.
-- sha256: of the stored file, checked again before it is attached. scheduled_at: when it was requeued last.
CREATE TABLE redrive_evidence.file_job_artifact (
    id                       uuid        PRIMARY KEY,
    file_job_id              uuid        NOT NULL REFERENCES redrive_evidence.file_job,
    file_job_row_id          uuid        NOT NULL REFERENCES redrive_evidence.file_job_row,
    tenant                   text        NOT NULL,
    case_id                  uuid        NOT NULL,
    file_name                text        NOT NULL,
    file_type                text,
    file_size_bytes          bigint,
    s3_key                   text        NOT NULL,
    sha256                   text        NOT NULL,
    attachment_status        varchar(20) NOT NULL DEFAULT 'PENDING',
    attachment_error_code    varchar(64),
    attachment_error_message text,
    attached_at              timestamptz,
    attempt_count            integer     NOT NULL DEFAULT 0,
    retry_count              integer     NOT NULL GENERATED ALWAYS AS (greatest(attempt_count - 1, 0)) STORED,
    retry_status             varchar(20) NOT NULL DEFAULT 'PENDING',
    next_retry_at            timestamptz,
    last_retry_at            timestamptz,
    error_category           varchar(20) GENERATED ALWAYS AS (redrive_evidence.error_category_of(attachment_error_code)) STORED,
    is_retryable             boolean     NOT NULL GENERATED ALWAYS AS (redrive_evidence.may_retry(attachment_error_code)
                                                                       AND attempt_count < 3) STORED,
    open_attempt             integer,
    scheduled_at             timestamptz,
    attachment_reference     text,
    created_at               timestamptz NOT NULL DEFAULT now(),
    updated_at               timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT sha256_is_hexadecimal CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT attempt_count_is_0_to_3 CHECK (attempt_count BETWEEN 0 AND 3),
    CONSTRAINT attachment_status_is_known CHECK (attachment_status IN ('PENDING', 'ATTACHED', 'FAILED')),
    CONSTRAINT retry_status_is_known CHECK (retry_status IN ('PENDING', 'RETRY_SCHEDULED', 'RETRYING', 'RETRY_SUCCESS', 'RETRY_FAILED',
                                                             'PERMANENT_FAILED')),
    CONSTRAINT attached_has_no_error CHECK (attachment_status <> 'ATTACHED' OR (attachment_error_code IS NULL AND attached_at IS NOT NULL)),
    CONSTRAINT failed_has_a_code CHECK (attachment_status <> 'FAILED' OR attachment_error_code IS NOT NULL)
);
CREATE INDEX idx_artifact_retry_scan ON redrive_evidence.file_job_artifact (next_retry_at, retry_count)
    WHERE retry_status IN ('PENDING', 'RETRY_FAILED') AND retry_count < 2;
CREATE INDEX idx_artifact_retry_cover ON redrive_evidence.file_job_artifact (next_retry_at, retry_count)
    INCLUDE (id, file_job_id, file_job_row_id, s3_key, case_id, retry_status, attachment_status)
    WHERE retry_status IN ('PENDING', 'RETRY_FAILED') AND retry_count < 2;
CREATE INDEX idx_artifact_by_job_row ON redrive_evidence.file_job_artifact (file_job_id, file_job_row_id);
CREATE INDEX artifact_row ON redrive_evidence.file_job_artifact (file_job_row_id);
CREATE INDEX artifact_case ON redrive_evidence.file_job_artifact (case_id);
CREATE INDEX artifact_scheduled ON redrive_evidence.file_job_artifact (scheduled_at) WHERE retry_status = 'RETRY_SCHEDULED';

-- Every attempt to attach an artifact: which message made it, and what it ended with. ended_at: NULL while it is under way.
CREATE TABLE redrive_evidence.artifact_attempt (
    message_id    uuid        PRIMARY KEY,
    artifact_id   uuid        NOT NULL REFERENCES redrive_evidence.file_job_artifact,
    file_job_id   uuid        NOT NULL,
    tenant        text        NOT NULL,
    number        integer     NOT NULL,
    begun_at      timestamptz NOT NULL,
    ended_at      timestamptz,
    status        varchar(20),
    error_code    varchar(64),
    CONSTRAINT artifact_attempt_number UNIQUE (artifact_id, number)
);
CREATE INDEX artifact_attempt_ended ON redrive_evidence.artifact_attempt (ended_at) WHERE ended_at IS NOT NULL;

-- The event of the outbox that asked for attempts of a row: the link from a row to the engine's message. event_type: of the contract.
CREATE TABLE redrive_evidence.row_event (
    message_id      uuid        PRIMARY KEY,
    file_job_row_id uuid        NOT NULL REFERENCES redrive_evidence.file_job_row,
    file_job_id     uuid        NOT NULL,
    tenant          text        NOT NULL,
    event_type      text        NOT NULL,
    occurred_at     timestamptz NOT NULL
);
CREATE INDEX row_event_row ON redrive_evidence.row_event (file_job_row_id);

-- An attachment that was found to have succeeded when its attempt counted as failed already, or its job was closed: kept, alerted, and in no
-- notice. No function changes it.
CREATE TABLE redrive_evidence.late_evidence (
    position    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    artifact_id uuid        NOT NULL REFERENCES redrive_evidence.file_job_artifact,
    file_job_id uuid        NOT NULL,
    tenant      text        NOT NULL,
    message_id  uuid        NOT NULL,
    reference   text,
    found_at    timestamptz NOT NULL,
    CONSTRAINT late_evidence_once UNIQUE (artifact_id, message_id)
);

-- A notice that was enqueued, with the numbers that it says. channel: mail or webhook.
CREATE TABLE redrive_evidence.notice (
    message_id  uuid        PRIMARY KEY,
    file_job_id uuid        NOT NULL REFERENCES redrive_evidence.file_job,
    tenant      text        NOT NULL,
    notice      text        NOT NULL CHECK (notice IN ('N1', 'N2')),
    channel     text        NOT NULL CHECK (channel IN ('mail', 'webhook')),
    summary     json        NOT NULL,
    created_at  timestamptz NOT NULL,
    CONSTRAINT notice_once UNIQUE (file_job_id, notice, channel)
);

-- The last run of the retry scheduler, and what all of them did. One row. breaker_open_count: runs that found the Case API's breaker open.
CREATE TABLE redrive_evidence.scheduler (
    id                 boolean     PRIMARY KEY DEFAULT true CHECK (id),
    ran_at             timestamptz NOT NULL,
    duration_seconds   float8      NOT NULL,
    batch_size         integer     NOT NULL,
    breaker_open_count bigint      NOT NULL DEFAULT 0,
    events_count       bigint      NOT NULL DEFAULT 0
);
