-- Workers that live, and how far their consumers are (verbs/worker.sql). Apart from relays: a worker handles no destination, moves no
-- money and hears no doorbell, and a question about relays must never count one.
-- consumers: an array with an object for each consumer, as its worker saw it at seen_at.
CREATE TABLE redrive.worker (
    worker     uuid        PRIMARY KEY,
    name       text        NOT NULL,
    host       text        NOT NULL,
    pid        integer     NOT NULL,
    version    text        NOT NULL,
    consumers  json        NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL
) WITH (fillfactor = 50);
-- Consumers that a worker ran within a week, so that one without a worker is seen. seen_at: at most a minute earlier than it was so.
CREATE TABLE redrive.consumer (
    name    text        PRIMARY KEY,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 50);
