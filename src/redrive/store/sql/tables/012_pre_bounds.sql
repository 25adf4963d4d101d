-- What a rate let out within the last second: when, and how many then. Written by the claims, as the rest of the row is.
ALTER TABLE redrive.allowance ADD COLUMN charged_at timestamptz[] NOT NULL DEFAULT '{}';
ALTER TABLE redrive.allowance ADD COLUMN charged integer[] NOT NULL DEFAULT '{}';
