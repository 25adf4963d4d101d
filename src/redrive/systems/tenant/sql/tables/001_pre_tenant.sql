-- The tenant outbox has no rows of its own: an event is a message of the engine, its kind the event type, its key the
-- idempotency key. Here is only what the relays were told, so that every reader judges by the same numbers.
CREATE SCHEMA redrive_tenant;

-- options: as OutboxOptions of the relay that published them last.
CREATE TABLE redrive_tenant.outbox (
    destination  text        PRIMARY KEY,
    options      json        NOT NULL,
    published_at timestamptz NOT NULL
);
