-- Which address each relay declared, by destination: two relays must not move the same money at two places.
ALTER TABLE redrive.relay ADD COLUMN addresses json NOT NULL DEFAULT '{}';
