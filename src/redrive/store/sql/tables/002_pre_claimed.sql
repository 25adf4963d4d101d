-- What a claim returns: one row per message, everything that a handler needs (see verbs/claim.sql).
-- attempt is NULL for a message that was closed as expired instead. probe: the one message that a destination gets whose breaker
-- was open. refusal is of settle_delivered, where it says why a claim
-- was not settled ('refused' or 'repeated').
CREATE TYPE redrive.claimed AS (
    id               uuid,
    attempt          integer,
    destination      text,
    tenant           text,
    kind             text,
    key              text,
    body             bytea,
    content_type     text,
    stage            text,
    version          integer,
    spent            integer,
    lookups          integer,
    crashes          integer,
    claimed_at       timestamptz,
    created_at       timestamptz,
    headers          json,
    order_by         text,
    sequence         bigint,
    in_doubt_since   timestamptz,
    down_since       timestamptz,
    first_failed_at  timestamptz,
    expired          boolean,
    cancel_requested boolean,
    kept_answer      json,
    earlier          json,
    level            smallint,
    probe            boolean,
    refusal          text
);
