-- The tables of the engine. docs/reference/tables.md explains each; docs/adr has the choices.
--
-- Who writes what:
--   producers   idempotency, stream (their counter), message, pending
--   relays      pending <-> lease, attempt, parked, late_answer
--   operators   parked -> pending, attempt, operator_action, destination
-- Lock order of every verb: idempotency, stream, message, lease, (business rows of record), lane, pending;
-- several rows of one table in key order.

CREATE SCHEMA IF NOT EXISTS redrive;

-- What was asked for, once, insert-only. Version 1 of the payload is here; an edit adds a row to `body`.
-- Partitioned by ranges of the UUIDv7 id, so that one message's history lies in one range.
-- Its bounds are checked by verbs/check_message.sql: nine CHECK constraints here cost half as much as the insert itself.
CREATE TABLE redrive.message (
    id           uuid        NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    lane         bigint,
    sequence     bigint,
    level        smallint    NOT NULL,
    tenant       text        NOT NULL,
    destination  text        NOT NULL,
    kind         text        NOT NULL,
    key          text,
    order_by     text,
    source_id    text,
    content_type text        NOT NULL,
    headers      json,
    body         bytea       NOT NULL,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE TABLE redrive.message_default PARTITION OF redrive.message DEFAULT;

-- Edited payloads, version 2 and later, insert-only.
CREATE TABLE redrive.body (
    message_id   uuid        NOT NULL,
    version      integer     NOT NULL CHECK (version >= 2),
    content_type text        NOT NULL,
    bytes        bytea       NOT NULL,
    sha256       bytea       NOT NULL,
    created_at   timestamptz NOT NULL,
    created_by   text        NOT NULL,
    PRIMARY KEY (message_id, version),
    CONSTRAINT body_has_at_most_256_kib CHECK (octet_length(bytes) <= 262144)
) PARTITION BY RANGE (message_id);
CREATE TABLE redrive.body_default PARTITION OF redrive.body DEFAULT;

-- The archive: one row for every attempt that ended and every act on a message, append-only (G-05).
-- `closed` is set on exactly one row of a message's life: the one that ended it.
CREATE TABLE redrive.attempt (
    message_id     uuid        NOT NULL,
    claimed_at     timestamptz,
    completed_at   timestamptz NOT NULL,
    due_at         timestamptz,
    worker         uuid,
    attempt        integer     NOT NULL,
    spent          integer     NOT NULL,
    version        integer     NOT NULL,
    latency_ms     integer,
    in_doubt       boolean     NOT NULL DEFAULT false,
    verb           text        NOT NULL,
    tenant         text        NOT NULL,
    destination    text        NOT NULL,
    stage          text        NOT NULL,
    settlement     text,
    answer         text,
    closed         text,
    code           text,
    policy_version text,
    text           text,
    reference      text,
    actor          text,
    reason         text,
    result         json,
    CONSTRAINT closed_is_an_end CHECK (closed IN ('delivered', 'expired', 'cancelled', 'skipped', 'discarded'))
) PARTITION BY RANGE (message_id);
CREATE INDEX attempt_message ON redrive.attempt (message_id);
CREATE TABLE redrive.attempt_default PARTITION OF redrive.attempt DEFAULT;

-- Ranges that exist, so that partitions can be made ahead and retired by name.
CREATE TABLE redrive.partition_range (
    starts_at timestamptz PRIMARY KEY,
    ends_at   timestamptz NOT NULL,
    suffix    text        NOT NULL UNIQUE
);

-- Idempotency keys, for good (G-02). The key's SHA-256, because a long key does not fit an index row.
CREATE TABLE redrive.idempotency (
    tenant      text        NOT NULL,
    key_hash    bytea       NOT NULL,
    message_id  uuid        NOT NULL,
    fingerprint bytea       NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant, key_hash)
);

-- Ordering keys: the producers' counter, and apart from it the relays' lane, so that neither waits for the other.
-- A lane row holds nothing: it is the lock under which the head of its lane changes. ../LANES.md is the reasoning.
CREATE TABLE redrive.stream (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant        text   NOT NULL,
    order_by      text   NOT NULL,
    last_sequence bigint NOT NULL,
    UNIQUE (tenant, order_by)
) WITH (fillfactor = 50);
CREATE TABLE redrive.lane (
    id bigint PRIMARY KEY
);
CREATE TABLE redrive.lane_wake (
    destination text        NOT NULL,
    level       smallint    NOT NULL,
    due_at      timestamptz NOT NULL,
    lane        bigint      NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
CREATE INDEX lane_wake_due ON redrive.lane_wake (destination, level, due_at, lane);

-- Work that waits. Thin and small whatever the history; ordered messages are not in the due index.
CREATE TABLE redrive.pending (
    id               uuid        PRIMARY KEY,
    due_at           timestamptz NOT NULL,
    lane             bigint,
    sequence         bigint,
    attempt          integer     NOT NULL DEFAULT 0,
    spent            integer     NOT NULL DEFAULT 0,
    lookups          integer     NOT NULL DEFAULT 0,
    crashes          integer     NOT NULL DEFAULT 0,
    version          integer     NOT NULL DEFAULT 1,
    level            smallint    NOT NULL,
    suspect          boolean     NOT NULL DEFAULT false,
    cancel_requested boolean     NOT NULL DEFAULT false,
    tenant           text        NOT NULL,
    destination      text        NOT NULL,
    stage            text        NOT NULL DEFAULT 'first',
    expires_at       timestamptz,
    in_doubt_since   timestamptz,
    down_since       timestamptz,
    first_failed_at  timestamptz,
    policy_version   text,
    kept_answer      json
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
CREATE INDEX pending_due ON redrive.pending (destination, level, due_at, id) WHERE lane IS NULL AND NOT suspect;
CREATE INDEX pending_suspect ON redrive.pending (destination, due_at, id) WHERE suspect;
CREATE UNIQUE INDEX pending_lane ON redrive.pending (lane, sequence) WHERE lane IS NOT NULL;
CREATE INDEX pending_expires ON redrive.pending (expires_at) WHERE expires_at IS NOT NULL;

-- Work that a relay has claimed: everything that `pending` carries, and the claim. Deleting (id, attempt) is the fence.
-- No index on `until`: the reaper's scan is O(in flight), and an index here is slower beside a long transaction.
CREATE TABLE redrive.lease (
    id               uuid        PRIMARY KEY,
    until            timestamptz NOT NULL,
    claimed_at       timestamptz NOT NULL,
    due_at           timestamptz NOT NULL,
    worker           uuid        NOT NULL,
    lane             bigint,
    sequence         bigint,
    lease_seconds    float8      NOT NULL,
    attempt          integer     NOT NULL,
    spent            integer     NOT NULL,
    lookups          integer     NOT NULL,
    crashes          integer     NOT NULL,
    version          integer     NOT NULL,
    level            smallint    NOT NULL,
    alone            boolean     NOT NULL,
    counted          boolean     NOT NULL DEFAULT false,
    cancel_requested boolean     NOT NULL,
    tenant           text        NOT NULL,
    destination      text        NOT NULL,
    stage            text        NOT NULL,
    expires_at       timestamptz,
    in_doubt_since   timestamptz,
    down_since       timestamptz,
    first_failed_at  timestamptz,
    policy_version   text,
    kept_answer      json
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
-- Leases of destinations with limits, so that counting one destination's costs nothing to the others.
CREATE INDEX lease_counted ON redrive.lease (destination) WHERE counted;
-- One claim per lane at a time: what would overtake is an error.
CREATE UNIQUE INDEX lease_lane ON redrive.lease (lane) WHERE lane IS NOT NULL;

-- Messages that wait for a person, whole: dead, held or unrecorded (G-27).
-- workflow: how far a person has got with a dead one (verbs/workflow.sql); row_version counts what people changed.
CREATE TABLE redrive.parked (
    id              uuid        PRIMARY KEY,
    reason          text        NOT NULL CHECK (reason IN ('dead', 'held', 'unrecorded')),
    parked_at       timestamptz NOT NULL,
    first_failed_at timestamptz NOT NULL,
    last_failed_at  timestamptz NOT NULL,
    tenant          text        NOT NULL,
    destination     text        NOT NULL,
    stage           text        NOT NULL,
    version         integer     NOT NULL,
    level           smallint    NOT NULL,
    lane            bigint,
    sequence        bigint,
    attempt         integer     NOT NULL,
    spent           integer     NOT NULL,
    lookups         integer     NOT NULL,
    crashes         integer     NOT NULL,
    error_class     text        NOT NULL,
    exhausted       boolean     NOT NULL,
    halts           boolean     NOT NULL,
    in_doubt_since  timestamptz,
    expires_at      timestamptz,
    policy_version  text,
    last_text       text,
    last_stack      text,
    context         json        NOT NULL,
    kept_answer     json,
    failure_group   bytea,
    workflow        text        NOT NULL DEFAULT 'open',
    cause           text,
    ticket          text,
    evidence        text,
    owner           text,
    note            text,
    edited          boolean     NOT NULL DEFAULT false,
    escalated       boolean     NOT NULL DEFAULT false,
    row_version     integer     NOT NULL DEFAULT 1,
    CONSTRAINT workflow_is_a_step CHECK (workflow IN ('open', 'triaged', 'remediated', 'validated', 'ignored')),
    CONSTRAINT cause_is_known CHECK (cause IN ('transient', 'data', 'auth_config', 'code_defect'))
);
CREATE INDEX parked_listed ON redrive.parked (reason, destination, parked_at, id);
CREATE INDEX parked_halting ON redrive.parked (lane, sequence) WHERE lane IS NOT NULL AND halts;
CREATE INDEX parked_group ON redrive.parked (failure_group) WHERE failure_group IS NOT NULL;

-- Outcomes that came after their claim was lost: refused, kept as evidence, never dropped.
CREATE TABLE redrive.late_answer (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id uuid        NOT NULL,
    attempt    integer     NOT NULL,
    worker     uuid        NOT NULL,
    at         timestamptz NOT NULL,
    settlement text        NOT NULL,
    answer     text,
    code       text,
    reference  text,
    text       text
);
CREATE INDEX late_answer_message ON redrive.late_answer (message_id);

-- Failures of one cause, and what a person says of them in `status`. Counted by a duty, from the tally.
CREATE TABLE redrive.failure_group (
    fingerprint   bytea       PRIMARY KEY,
    destination   text        NOT NULL,
    kind          text        NOT NULL,
    error_class   text        NOT NULL,
    sample_text   text,
    seen          bigint      NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    status        text        NOT NULL DEFAULT 'open',
    owner         text,
    note          text,
    snoozed_until timestamptz,
    resolved_at   timestamptz,
    CONSTRAINT status_is_what_a_person_says CHECK (status IN ('open', 'resolved', 'snoozed', 'ignored'))
);
CREATE INDEX failure_group_listed ON redrive.failure_group (last_seen_at, fingerprint);
-- Failures that no group has counted yet. Parking a message appends a row here and takes no lock (docs/adr/009).
CREATE TABLE redrive.failure_tally (
    fingerprint bytea       NOT NULL,
    at          timestamptz NOT NULL,
    destination text        NOT NULL,
    kind        text        NOT NULL,
    error_class text        NOT NULL,
    sample_text text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);

-- What operators did, hash-chained and append-only.
CREATE TABLE redrive.operator_action (
    id            bigint      PRIMARY KEY,
    at            timestamptz NOT NULL,
    actor         text        NOT NULL,
    act           text        NOT NULL,
    subject       text        NOT NULL,
    reason        text        NOT NULL,
    before        json,
    after         json,
    previous_hash bytea       NOT NULL,
    hash          bytea       NOT NULL
);
CREATE INDEX operator_action_subject ON redrive.operator_action (subject);

-- Replays: which messages, how fast, and what became of each. The duty `replay` carries them out (verbs/replay.sql).
-- status: waiting (for a second person), running, paused, stopped (too many failed), cancelled, done.
-- finished_at: nothing of it is left to do or to look at.
CREATE TABLE redrive.replay (
    id                uuid        PRIMARY KEY,
    name              text        NOT NULL,
    request_key       text        UNIQUE,
    filter            json        NOT NULL,
    status            text        NOT NULL,
    stop_reason       text,
    stage             text,
    out_of_order      boolean     NOT NULL,
    override          boolean     NOT NULL,
    rate_per_second   float8      NOT NULL CHECK (rate_per_second > 0),
    canary            integer     NOT NULL CHECK (canary >= 0),
    failure_ratio_max float8      NOT NULL CHECK (failure_ratio_max BETWEEN 0 AND 1),
    rate_room         float8      NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL,
    created_by        text        NOT NULL,
    reason            text        NOT NULL,
    approved_by       text,
    stepped_at        timestamptz,
    resumed_at        timestamptz NOT NULL,
    finished_at       timestamptz,
    CONSTRAINT status_is_of_a_replay CHECK (status IN ('waiting', 'running', 'paused', 'stopped', 'cancelled', 'done'))
);
CREATE INDEX replay_unfinished ON redrive.replay (id) WHERE finished_at IS NULL;
-- outcome: NULL while it waits, requeued while it is under way, then skipped, or where the message got to.
CREATE TABLE redrive.replay_item (
    replay_id   uuid        NOT NULL REFERENCES redrive.replay,
    position    bigint      NOT NULL,
    message_id  uuid        NOT NULL,
    error_class text        NOT NULL,
    row_version integer     NOT NULL,
    outcome     text,
    detail      text,
    requeued_at timestamptz,
    finished_at timestamptz,
    verified_at timestamptz,
    verified_by text,
    PRIMARY KEY (replay_id, position)
);
CREATE INDEX replay_item_message ON redrive.replay_item (message_id);
CREATE INDEX replay_item_waiting ON redrive.replay_item (replay_id, position) WHERE outcome IS NULL;
CREATE INDEX replay_item_under_way ON redrive.replay_item (replay_id, position) WHERE outcome = 'requeued';

-- What one person has asked for and a second one has to ask for too, because it sends money.
CREATE TABLE redrive.proposal (
    act      text        NOT NULL,
    subject  text        NOT NULL,
    asked_by text        NOT NULL,
    asked_at timestamptz NOT NULL,
    reason   text        NOT NULL,
    PRIMARY KEY (act, subject)
);

-- What is known of a destination beyond one process: pause, breaker, and the limits over all relays.
-- limited: a claim must lock this row and count before it takes anything. Read by every claim, so it changes rarely;
-- what changes with the claims is in `allowance`.
CREATE TABLE redrive.destination (
    name               text        PRIMARY KEY,
    has_record         boolean     NOT NULL DEFAULT false,
    money              boolean     NOT NULL DEFAULT false,
    paused_at          timestamptz,
    paused_until       timestamptz,
    paused_by          text,
    pause_reason       text,
    breaker            text        NOT NULL DEFAULT 'closed',
    breaker_changed_at timestamptz,
    breaker_until      timestamptz,
    breaker_opened_at  timestamptz,
    breaker_trips      integer     NOT NULL DEFAULT 0,
    breaker_code       text,
    breaker_probe      uuid,
    concurrency_limit  integer,
    rate_per_second    float8,
    limited            boolean     GENERATED ALWAYS AS
        (breaker <> 'closed' OR concurrency_limit IS NOT NULL OR rate_per_second IS NOT NULL) STORED,
    CONSTRAINT name_has_1_to_100_characters CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT breaker_is_a_state CHECK (breaker IN ('closed', 'open', 'half_open', 'ramping'))
) WITH (fillfactor = 50);
CREATE INDEX destination_watched ON redrive.destination (name) WHERE limited OR money OR paused_at IS NOT NULL;
-- What a destination with limits has left, written by the claims that use it up, behind the lock of its destination row.
-- Not worth a WAL record: after a crash of the server every rate begins anew.
CREATE UNLOGGED TABLE redrive.allowance (
    destination text        PRIMARY KEY,
    rate_room   float8      NOT NULL,
    rate_at     timestamptz NOT NULL,
    turns       bigint      NOT NULL
) WITH (fillfactor = 50);

-- Relays that live, and what they handle (G-29).
CREATE TABLE redrive.relay (
    worker        uuid        PRIMARY KEY,
    name          text        NOT NULL,
    host          text        NOT NULL,
    pid           integer     NOT NULL,
    version       text        NOT NULL,
    destinations  text[]      NOT NULL,
    policies      json        NOT NULL,
    suspects_only boolean     NOT NULL,
    started_at    timestamptz NOT NULL,
    seen_at       timestamptz NOT NULL,
    stopping      boolean     NOT NULL DEFAULT false,
    listener      text        NOT NULL DEFAULT 'off'
) WITH (fillfactor = 50);
-- Which relay sleeps, until when, for want of work for which destinations: producers ring only while one does. Not worth a
-- WAL record. The key begins with the time: a producer that notifies reads only what lies ahead, however many dead rows lie behind.
CREATE UNLOGGED TABLE redrive.doorbell (
    idle_until   timestamptz NOT NULL,
    worker       uuid        NOT NULL,
    destinations text[]      NOT NULL,
    PRIMARY KEY (idle_until, worker)
);

-- Periodic work, once at a time over all machines (G-17).
CREATE TABLE redrive.duty (
    name          text        PRIMARY KEY,
    every_seconds float8      NOT NULL,
    holder        uuid,
    holder_until  timestamptz,
    started_at    timestamptz,
    finished_at   timestamptz,
    result        text,
    mended        bigint      NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Work that needs user code and is asked for by a person: validate. A relay carries it out, and never the person's process.
-- row_version: of the parked record; an answer about what was changed since counts for nothing.
-- tries: how often a relay took it. One that takes its relays down is not given to a third.
CREATE TABLE redrive.request (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    destination  text        NOT NULL,
    kind         text        NOT NULL,
    message_id   uuid        NOT NULL,
    row_version  integer     NOT NULL,
    asked_at     timestamptz NOT NULL,
    asked_by     text        NOT NULL,
    tries        integer     NOT NULL DEFAULT 0,
    worker       uuid,
    taken_until  timestamptz,
    answered_at  timestamptz,
    answer       json
);
CREATE INDEX request_open ON redrive.request (destination, id) WHERE answered_at IS NULL;
CREATE INDEX request_message ON redrive.request (message_id, id);

-- Gates over many members, and messages that came from a broker.
CREATE TABLE redrive.batch (
    id            uuid        PRIMARY KEY,
    tenant        text        NOT NULL,
    name          text        NOT NULL,
    expected      bigint,
    created_at    timestamptz NOT NULL,
    sealed_at     timestamptz,
    first_pass_at timestamptz,
    settled_at    timestamptz,
    deadline_at   timestamptz,
    revision      integer     NOT NULL DEFAULT 1,
    UNIQUE (tenant, name)
);
CREATE TABLE redrive.batch_member (
    batch_id    uuid        NOT NULL REFERENCES redrive.batch,
    member      text        NOT NULL,
    state       text        NOT NULL,
    tried_at    timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (batch_id, member)
);
CREATE INDEX batch_member_open ON redrive.batch_member (batch_id) WHERE finished_at IS NULL;
CREATE TABLE redrive.inbox (
    consumer    text        NOT NULL,
    message_id  text        NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (consumer, message_id)
);
