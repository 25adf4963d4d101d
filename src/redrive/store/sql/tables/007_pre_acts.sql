-- A replay is approved for these letters as they are: one that has gone out and died again meanwhile is another incident.
-- attempt: how often it had been claimed when the replay was made; NULL of replays that were made before this column.
ALTER TABLE redrive.replay_item ADD COLUMN attempt integer;
