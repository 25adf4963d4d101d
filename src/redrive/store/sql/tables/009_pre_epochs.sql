-- Restores, copies and promotions (verbs/epoch.sql, verbs/witness.sql).

-- Which database this is: a copy, a dump and a restored backup of it keep the id. Relays keep what they remember of it by this id.
CREATE TABLE redrive.identity (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid()
);
CREATE UNIQUE INDEX identity_is_one ON redrive.identity ((true));
INSERT INTO redrive.identity DEFAULT VALUES;

-- destination: the one that it pauses; NULL = all that move money. doubted_at: when all that was pending or dead there was put in doubt;
-- NULL = it has still to be, because another transaction held some of it.
ALTER TABLE redrive.epoch ADD COLUMN destination text;
ALTER TABLE redrive.epoch ADD COLUMN doubted_at timestamptz;
UPDATE redrive.epoch e SET doubted_at = e.began_at;

-- What a relay remembers money attempts in. witness: file (over restarts), memory (while it runs), NULL (it sends no money, or is older).
-- witnessed_at: when the database last knew all that it remembers.
ALTER TABLE redrive.relay ADD COLUMN witness text
    CONSTRAINT witness_is_known CHECK (witness IN ('file', 'memory'));
ALTER TABLE redrive.relay ADD COLUMN witnessed_at timestamptz;

-- Destinations whose other side lists what it did, and when that list was last compared with what is here. Written by systems.
CREATE TABLE redrive.comparison (
    destination text        PRIMARY KEY,
    began_at    timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    clean       boolean     NOT NULL
);
