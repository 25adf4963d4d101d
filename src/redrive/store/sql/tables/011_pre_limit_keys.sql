-- A part of a destination that is limited by itself: a host or a tenant, as its transport names it (G-31). Only what is not plain has a
-- row: a key that rests (paused_until), is paused, or whose breaker is not closed; the columns mean what those of `destination` mean.
-- A row that says nothing any more is deleted with the relays that are forgotten.
CREATE TABLE redrive.limit_key (
    destination        text        NOT NULL,
    key                text        NOT NULL,
    paused_at          timestamptz,
    paused_until       timestamptz,
    paused_by          text,
    pause_reason       text,
    breaker            text        NOT NULL DEFAULT 'closed',
    breaker_changed_at timestamptz,
    breaker_until      timestamptz,
    breaker_opened_at  timestamptz,
    breaker_trips      integer     NOT NULL DEFAULT 0,
    breaker_code       text,
    breaker_probe      uuid,
    PRIMARY KEY (destination, key),
    CONSTRAINT key_has_1_to_100_characters CHECK (char_length(key) BETWEEN 1 AND 100),
    CONSTRAINT breaker_is_a_state CHECK (breaker IN ('closed', 'open', 'half_open', 'ramping'))
) WITH (fillfactor = 50);
-- From when on a key of a destination with a rate may send its next message. Not worth a WAL record: after a crash of the server every
-- rate begins anew.
CREATE UNLOGGED TABLE redrive.limit_key_rate (
    destination text        NOT NULL,
    key         text        NOT NULL,
    next_at     timestamptz NOT NULL,
    PRIMARY KEY (destination, key)
) WITH (fillfactor = 50);
-- For which limit key a message was put off: it is brought forward when that key is resumed. NULL of what was not put off.
ALTER TABLE redrive.pending ADD COLUMN limit_key text;
CREATE INDEX pending_limit_key ON redrive.pending (destination, limit_key) WHERE limit_key IS NOT NULL;
