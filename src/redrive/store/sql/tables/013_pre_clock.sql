-- Jumps of the server's clock that relays noticed (verbs/clock.sql, docs/explanation/clock.md). era: numbers them.
-- noticed_at: by the clock as it is since. expected_at: what the clock would have said at that moment without the jump.
-- offset_seconds: noticed_at - expected_at; less than 0 where it was set back.
-- window_seconds: the jump happened at most so long before it was noticed; NULL where no relay ran at that time.
-- written_before: transactions with an earlier id may have written by the clock as it was; rows of later ones are never re-dated.
-- redated: messages and tokens that were re-dated. finished_at: nothing is left to re-date.
CREATE TABLE redrive.clock_jump (
    era            bigint      PRIMARY KEY,
    noticed_at     timestamptz NOT NULL,
    expected_at    timestamptz NOT NULL,
    offset_seconds float8      NOT NULL,
    window_seconds float8,
    noticed_by     text        NOT NULL,
    written_before bigint      NOT NULL,
    redated        bigint      NOT NULL DEFAULT 0,
    finished_at    timestamptz
);

-- The stretch of the server's time over which a relay has seen the clock go on without a jump. A relay that stood still itself would
-- take that for a jump; what another relay has seen meanwhile contradicts it.
ALTER TABLE redrive.relay ADD COLUMN steady_since timestamptz;
ALTER TABLE redrive.relay ADD COLUMN steady_until timestamptz;
