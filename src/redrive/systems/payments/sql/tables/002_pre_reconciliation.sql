-- Comparing the books (verbs/reconcile.sql): what the rails say they did, what is not compared yet, and what does not agree.

-- The statement of each rail, as far as it was read: a copy, append-only but for `matched_at`.
-- outbox_id: the intent that it is of, NULL where no payment asked for it. position: in the order in which it was read.
CREATE TABLE redrive_payments.statement_entry (
    position       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rail_type      text        NOT NULL,
    cursor         text        NOT NULL,
    token          text        NOT NULL,
    outbox_id      uuid,
    instruction_id text        NOT NULL,
    participant_id text        NOT NULL,
    sequence_id    bigint      NOT NULL,
    amount         numeric     NOT NULL,
    currency       text        NOT NULL,
    reference      text,
    effected_at    timestamptz NOT NULL,
    read_at        timestamptz NOT NULL,
    matched_at     timestamptz,
    UNIQUE (rail_type, cursor)
);
CREATE INDEX statement_entry_outbox ON redrive_payments.statement_entry (outbox_id) WHERE outbox_id IS NOT NULL;
CREATE INDEX statement_entry_open ON redrive_payments.statement_entry (rail_type, position) WHERE matched_at IS NULL;

-- A statement knows no tenants.
CREATE INDEX intent_number ON redrive_payments.intent (participant_id, sequence_id);

-- Where each rail's statement was read up to, and when all sides were last compared. clean: nothing was found then.
CREATE TABLE redrive_payments.reconciliation (
    rail_type   text        PRIMARY KEY,
    cursor      text,
    compared_at timestamptz,
    clean       boolean     NOT NULL DEFAULT false
);

-- Intents that are not over on all three sides yet: small whatever the history.
CREATE TABLE redrive_payments.unreconciled (
    rail_type text NOT NULL,
    outbox_id uuid NOT NULL,
    PRIMARY KEY (rail_type, outbox_id)
);
CREATE FUNCTION redrive_payments.expect_effect() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_payments, pg_temp
AS $body$
BEGIN
    INSERT INTO unreconciled (rail_type, outbox_id) VALUES (NEW.rail_type, NEW.outbox_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$body$;
CREATE TRIGGER expect_effect AFTER INSERT ON redrive_payments.intent FOR EACH ROW EXECUTE FUNCTION redrive_payments.expect_effect();
INSERT INTO redrive_payments.unreconciled (rail_type, outbox_id) SELECT i.rail_type, i.outbox_id FROM redrive_payments.intent i;

-- What does not agree, with the evidence; resolved_at: when it was compared and agreed.
CREATE TABLE redrive_payments.finding (
    rail_type     text        NOT NULL,
    kind          text        NOT NULL,
    subject       text        NOT NULL,
    sentence      text        NOT NULL,
    evidence      json        NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    resolved_at   timestamptz,
    PRIMARY KEY (rail_type, kind, subject)
);
CREATE INDEX finding_open ON redrive_payments.finding (rail_type, kind) WHERE resolved_at IS NULL;
