-- The tables of payments. Who is paid for whom is here; what becomes of it is the engine's: a payment is one of its messages.
-- An account number is in no table of these: it is in the message alone, whose payload is a permission of its own.
CREATE SCHEMA IF NOT EXISTS redrive_payments;

-- Who pays. His payments are one line, whatever their rails: the next goes out when the one before is closed.
CREATE TABLE redrive_payments.participant (
    tenant         text        NOT NULL,
    participant_id text        NOT NULL,
    name           text        NOT NULL DEFAULT '',
    created_at     timestamptz NOT NULL,
    PRIMARY KEY (tenant, participant_id),
    CONSTRAINT participant_id_has_1_to_150_characters CHECK (char_length(participant_id) BETWEEN 1 AND 150)
);

-- What is to be paid, once: the same instruction with another amount is refused.
-- destination_hash: SHA-256 of its canonical JSON. destination_shown: the same with all but the last characters hidden.
CREATE TABLE redrive_payments.instruction (
    tenant            text        NOT NULL,
    instruction_id    text        NOT NULL,
    participant_id    text        NOT NULL,
    rail_type         text        NOT NULL,
    amount            numeric     NOT NULL,
    currency          text        NOT NULL,
    destination_hash  bytea       NOT NULL,
    destination_shown json        NOT NULL,
    created_at        timestamptz NOT NULL,
    PRIMARY KEY (tenant, instruction_id),
    FOREIGN KEY (tenant, participant_id) REFERENCES redrive_payments.participant,
    CONSTRAINT instruction_id_has_1_to_200_characters CHECK (char_length(instruction_id) BETWEEN 1 AND 200),
    CONSTRAINT amount_is_above_zero CHECK (amount > 0 AND amount < 1e15),
    CONSTRAINT currency_is_a_code CHECK (currency ~ '^[A-Z]{3}$')
);

-- One message of the engine for an instruction: its outbox id is the message's id, and the token that the rail is given.
-- A second one of an instruction exists only where the first is known to have had no effect.
CREATE TABLE redrive_payments.intent (
    outbox_id       uuid        PRIMARY KEY,
    tenant          text        NOT NULL,
    instruction_id  text        NOT NULL,
    idempotency_key text        NOT NULL,
    participant_id  text        NOT NULL,
    sequence_id     bigint      NOT NULL,
    rail_type       text        NOT NULL,
    created_at      timestamptz NOT NULL,
    FOREIGN KEY (tenant, instruction_id) REFERENCES redrive_payments.instruction,
    CONSTRAINT intent_participant_sequence UNIQUE (tenant, participant_id, sequence_id),
    CONSTRAINT intent_instruction_key UNIQUE (tenant, instruction_id, idempotency_key),
    CONSTRAINT idempotency_key_has_1_to_500_characters CHECK (char_length(idempotency_key) BETWEEN 1 AND 500)
);

-- What was asked for stays as it was.
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON redrive_payments.instruction FOR EACH ROW EXECUTE FUNCTION redrive.refuse_change();
CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON redrive_payments.instruction FOR EACH STATEMENT EXECUTE FUNCTION redrive.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON redrive_payments.intent FOR EACH ROW EXECUTE FUNCTION redrive.refuse_change();
CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON redrive_payments.intent FOR EACH STATEMENT EXECUTE FUNCTION redrive.refuse_change();
