-- The tables of reviews: which changelist is reviewed in which version, and who has been notified of it. What becomes of a stage or a
-- notification is the engine's: each is one of its messages. A recipient's address is in `delivery` and in the message that goes there.
CREATE SCHEMA redrive_reviews;

-- A changelist that was submitted for review: the row that submissions of its versions lock.
CREATE TABLE redrive_reviews.changelist (
    tenant         text    NOT NULL,
    changelist_id  text    NOT NULL,
    latest_version integer NOT NULL,
    PRIMARY KEY (tenant, changelist_id),
    CONSTRAINT changelist_id_has_1_to_200_characters CHECK (char_length(changelist_id) BETWEEN 1 AND 200)
);

-- One version of a review. message_id: the engine's message that goes through the stages fetch and llm.
-- request_hash: SHA-256 of the request, so that a repeated key with another request is seen.
-- reviewed_at: when llm was settled and the notifications were enqueued. succeeded_at: when the last required recipient was notified.
CREATE TABLE redrive_reviews.job (
    job_id          uuid        PRIMARY KEY,
    tenant          text        NOT NULL,
    idempotency_key text        NOT NULL,
    changelist_id   text        NOT NULL,
    review_version  integer     NOT NULL,
    repository      text        NOT NULL,
    base_commit     text        NOT NULL,
    head_commit     text        NOT NULL,
    request_hash    bytea       NOT NULL,
    message_id      uuid        NOT NULL,
    created_at      timestamptz NOT NULL,
    reviewed_at     timestamptz,
    critic          text,
    findings        integer,
    succeeded_at    timestamptz,
    CONSTRAINT job_idempotency_key UNIQUE (tenant, idempotency_key),
    CONSTRAINT job_changelist_version UNIQUE (tenant, changelist_id, review_version),
    CONSTRAINT idempotency_key_has_1_to_500_characters CHECK (char_length(idempotency_key) BETWEEN 1 AND 500),
    CONSTRAINT review_version_is_above_0 CHECK (review_version > 0)
);
CREATE INDEX job_message ON redrive_reviews.job (message_id);

-- The intent "this recipient is notified of this version", once. message_id: the notification that is to be sent, NULL before llm.
-- notification_id, notified_at, status = 'sent' and evidence are written together, after the provider has accepted (mark_sent_1).
-- evidence: what the provider answered. verified_at: when the provider was asked afterwards, and had it.
-- decided_by: a person who decided what no provider could say.
CREATE TABLE redrive_reviews.delivery (
    tenant          text        NOT NULL,
    changelist_id   text        NOT NULL,
    recipient       text        NOT NULL,
    review_version  integer     NOT NULL,
    job_id          uuid        NOT NULL REFERENCES redrive_reviews.job,
    provider        text        NOT NULL,
    required        boolean     NOT NULL,
    status          text        NOT NULL DEFAULT 'waiting',
    message_id      uuid,
    notification_id text,
    notified_at     timestamptz,
    evidence        json,
    verified_at     timestamptz,
    error_class     text,
    decided_by      text,
    on_replay       text,
    PRIMARY KEY (tenant, changelist_id, recipient, review_version),
    CONSTRAINT recipient_has_3_to_320_characters CHECK (char_length(recipient) BETWEEN 3 AND 320),
    CONSTRAINT status_is_known CHECK (status IN ('waiting', 'queued', 'sent', 'failed', 'held'))
);
CREATE INDEX delivery_job ON redrive_reviews.delivery (job_id);
CREATE INDEX delivery_message_id ON redrive_reviews.delivery (message_id) WHERE message_id IS NOT NULL;
-- What reconciliation looks at: everything that is not notified and verified. Small whatever the history.
CREATE INDEX delivery_open ON redrive_reviews.delivery (provider, tenant, changelist_id, recipient, review_version)
    WHERE verified_at IS NULL;

-- Every message that was made for a delivery: one, and one more for each time that reconciliation or a person sent it again.
CREATE TABLE redrive_reviews.delivery_message (
    message_id     uuid        PRIMARY KEY,
    tenant         text        NOT NULL,
    changelist_id  text        NOT NULL,
    recipient      text        NOT NULL,
    review_version integer     NOT NULL,
    created_at     timestamptz NOT NULL,
    FOREIGN KEY (tenant, changelist_id, recipient, review_version) REFERENCES redrive_reviews.delivery
);
CREATE INDEX delivery_message_triple ON redrive_reviews.delivery_message (tenant, changelist_id, recipient, review_version);

-- Rows that were marked as sent while the provider had no record of it: the order "send, then mark" was violated (R-07, R-12).
-- repair: requeued (the provider was asked and does not have it) or held (nothing can be asked: a person decides).
CREATE TABLE redrive_reviews.violation (
    position        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant          text        NOT NULL,
    changelist_id   text        NOT NULL,
    recipient       text        NOT NULL,
    review_version  integer     NOT NULL,
    provider        text        NOT NULL,
    notification_id text,
    notified_at     timestamptz,
    repair          text        NOT NULL CHECK (repair IN ('requeued', 'held')),
    found_at        timestamptz NOT NULL
);

-- What a review works on. No role but the engine's owner reads it: a diff may have anything in it. It goes when its job has succeeded.
CREATE TABLE redrive_reviews.work (
    message_id uuid PRIMARY KEY,
    diff       text,
    findings   json
);
