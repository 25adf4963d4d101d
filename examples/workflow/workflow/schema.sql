-- The rows of the workflow application. Nothing here keeps a second event away: the outbox does, by its key.
CREATE TABLE IF NOT EXISTS workflow_definition (
    tenant    text    NOT NULL,
    name      text    NOT NULL,
    version   integer NOT NULL,
    published boolean NOT NULL DEFAULT true,
    changes   integer NOT NULL DEFAULT 1, -- how often this version was published or unpublished
    PRIMARY KEY (tenant, name, version)
);
CREATE TABLE IF NOT EXISTS workflow_instance (
    tenant     text    NOT NULL,
    id         uuid    NOT NULL,
    definition text    NOT NULL,
    version    integer NOT NULL,
    status     text    NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'failed', 'cancelled')),
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, definition, version) REFERENCES workflow_definition
);
CREATE TABLE IF NOT EXISTS workflow_gateway_decision (
    tenant   text        NOT NULL,
    instance uuid        NOT NULL,
    gateway  text        NOT NULL,
    branch   text        NOT NULL,
    decided_at timestamptz NOT NULL,
    FOREIGN KEY (tenant, instance) REFERENCES workflow_instance
);
CREATE TABLE IF NOT EXISTS workflow_task (
    tenant   text    NOT NULL,
    id       uuid    NOT NULL,
    instance uuid    NOT NULL,
    name     text    NOT NULL,
    status   text    NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'claimed', 'completed', 'cancelled')),
    assignee text,
    revision integer NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, instance) REFERENCES workflow_instance
);
-- What the subscriber was told, each event once. It would be in a database of the subscriber's own.
CREATE TABLE IF NOT EXISTS subscriber_ledger (
    token      text PRIMARY KEY,
    tenant     text NOT NULL,
    event_type text NOT NULL,
    key        uuid NOT NULL,
    payload    jsonb NOT NULL,
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
