-- What keeps one instruction at one effect, whatever is restored, edited or asked for (docs/explanation/money.md).

-- The token that a destination deduplicates by (verbs/token.sql). A message enqueued with a token seed has the same tokens in every
-- database and after every restore. token: of the present version and stage; NULL = the id. The archive keeps which one an attempt used.
ALTER TABLE redrive.message ADD COLUMN token_seed text;
ALTER TABLE redrive.pending ADD COLUMN token uuid;
ALTER TABLE redrive.lease ADD COLUMN token uuid;
ALTER TABLE redrive.parked ADD COLUMN token uuid;
ALTER TABLE redrive.attempt ADD COLUMN token uuid;
-- token_used_since: when a claim first used this token, of messages in doubt. has_evidence: see `evidence`.
ALTER TYPE redrive.claimed ADD ATTRIBUTE token uuid;
ALTER TYPE redrive.claimed ADD ATTRIBUTE token_used_since timestamptz;
ALTER TYPE redrive.claimed ADD ATTRIBUTE has_evidence boolean;

-- Evidence that a message was delivered although its claim says otherwise: a late answer, or what a system knows (the statement of a
-- rail). Such a message is never sent, edited, denied, discarded or skipped; it is confirmed. Append-only.
-- kind: late_answer, statement, … subject: which one, so that the same evidence is kept once.
CREATE TABLE redrive.evidence (
    message_id uuid        NOT NULL,
    kind       text        NOT NULL,
    subject    text        NOT NULL,
    reference  text,
    at         timestamptz NOT NULL,
    PRIMARY KEY (message_id, kind, subject)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON redrive.evidence FOR EACH ROW EXECUTE FUNCTION redrive.refuse_change();
CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON redrive.evidence FOR EACH STATEMENT EXECUTE FUNCTION redrive.refuse_change();

-- A proposal is for one version of a message, in one incident, with these options; `binding` is the hash of all of that.
-- bytes, content_type: the payload that an edit proposes; reading it is a permission of its own.
ALTER TABLE redrive.proposal ADD COLUMN binding bytea;
ALTER TABLE redrive.proposal ADD COLUMN options json;
ALTER TABLE redrive.proposal ADD COLUMN content_type text;
ALTER TABLE redrive.proposal ADD COLUMN bytes bytea;

-- What relays declare of a destination. in_doubt: lookup, resend or hold. address: the hash of where it is and as whom it is reached;
-- changed while something is in doubt there, the next attempt would ask the wrong place.
-- effects_within_seconds: the longest of request timeout, lease and settlement lag; a send that has begun shows its effect by then.
ALTER TABLE redrive.destination ADD COLUMN in_doubt text NOT NULL DEFAULT 'resend'
    CONSTRAINT in_doubt_is_known CHECK (in_doubt IN ('lookup', 'resend', 'hold'));
ALTER TABLE redrive.destination ADD COLUMN address text;
ALTER TABLE redrive.destination ADD COLUMN effects_within_seconds float8 NOT NULL DEFAULT 0;

-- Destinations whose name begins with a prefix belong to a system: only its own functions enqueue there.
CREATE TABLE redrive.destination_owner (
    prefix text PRIMARY KEY CHECK (char_length(prefix) BETWEEN 1 AND 100),
    system text NOT NULL
);

-- Why an epoch began: by the server (another system identifier or timeline), by a relay's witness, by a rail's statement, or declared by
-- a person.
ALTER TABLE redrive.epoch ADD COLUMN cause text NOT NULL DEFAULT 'server'
    CONSTRAINT cause_is_known CHECK (cause IN ('server', 'witness', 'statement', 'declared'));
ALTER TABLE redrive.epoch ADD COLUMN declared_by text;
ALTER TABLE redrive.epoch ADD COLUMN reason text;
