-- The lives of this database: which server it has been on, and on which of its timelines (verbs/epoch.sql). The latest counts.
CREATE TABLE redrive.epoch (
    number            integer     PRIMARY KEY,
    system_identifier bigint      NOT NULL,
    timeline          integer     NOT NULL,
    began_at          timestamptz NOT NULL
);
