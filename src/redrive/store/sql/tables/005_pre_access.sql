-- Logins over HTTP. Only hashes of secrets are stored.
-- kind: token (for programs, and to log in with) or link (good for one login). tenant: '*' = all of them.
-- name: who acts, in the audit. used_at: about when it was last used.
CREATE TABLE redrive.access_token (
    id          uuid        PRIMARY KEY,
    kind        text        NOT NULL CHECK (kind IN ('token', 'link')),
    name        text        NOT NULL,
    role        text        NOT NULL,
    tenant      text        NOT NULL,
    secret_hash bytea       NOT NULL UNIQUE,
    created_at  timestamptz NOT NULL,
    created_by  text        NOT NULL,
    expires_at  timestamptz NOT NULL,
    used_at     timestamptz,
    revoked_at  timestamptz,
    CONSTRAINT role_is_known CHECK (role IN ('viewer', 'operator', 'approver', 'admin')),
    CONSTRAINT name_has_1_to_100_characters CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT tenant_has_1_to_100_characters CHECK (char_length(tenant) BETWEEN 1 AND 100)
);
-- A browser that has logged in by a token or a link; it ends with what it came by. seen_at: about when it was last used.
CREATE TABLE redrive.access_session (
    secret_hash bytea       PRIMARY KEY,
    token_id    uuid        NOT NULL REFERENCES redrive.access_token,
    created_at  timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL
);
CREATE INDEX access_session_token ON redrive.access_session (token_id);
CREATE INDEX access_session_expires ON redrive.access_session (expires_at);
-- Changes asked for over HTTP under an Idempotency-Key, and what was answered: asked again, the answer is the same.
-- status, answer: NULL while the first one is still under way.
CREATE TABLE redrive.api_request (
    actor       text        NOT NULL,
    key_hash    bytea       NOT NULL,
    fingerprint bytea       NOT NULL,
    asked_at    timestamptz NOT NULL,
    status      integer,
    answer      bytea,
    PRIMARY KEY (actor, key_hash)
);
CREATE INDEX api_request_asked ON redrive.api_request (asked_at);
