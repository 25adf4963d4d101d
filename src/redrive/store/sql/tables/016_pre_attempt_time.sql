-- What ended within a span of time, whatever its messages' age: rates over a window (the tenant outbox) read just the end of the
-- archive. Block ranges, because the archive is appended in the order of time: an entry for 64 pages, no work for most inserts.
CREATE INDEX attempt_completed ON redrive.attempt USING brin (completed_at) WITH (pages_per_range = 64, autosummarize = on);
