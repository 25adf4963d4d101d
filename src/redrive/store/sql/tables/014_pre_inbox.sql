-- What a consumer of a broker has received (verbs/inbox.sql, docs/explanation/consuming.md). A plain table: the unique key of a
-- partitioned one would have to contain the time, and then the same message could be received twice.
-- outcome: processed (in the transaction that received it); deferred to the engine as the message deferred_as; or reserved: the broker
-- still has it, and the message deferred_as keeps its place.
-- received_in: the transaction that wrote the row, so that it alone may still defer what it has received.
ALTER TABLE redrive.inbox ADD COLUMN outcome text NOT NULL DEFAULT 'processed' CHECK (outcome IN ('processed', 'deferred', 'reserved'));
ALTER TABLE redrive.inbox ADD COLUMN deferred_as uuid;
ALTER TABLE redrive.inbox ADD COLUMN received_in bigint;
CREATE INDEX inbox_received ON redrive.inbox (received_at);
