-- Statements as evidence, and findings that people have acknowledged.

-- The token of its first version, as the rail is given it; NULL = the outbox id (adopted payments, and those from before token seeds).
ALTER TABLE redrive_payments.intent ADD COLUMN token uuid;
CREATE INDEX intent_token ON redrive_payments.intent ((coalesce(token, outbox_id)));
CREATE INDEX intent_instruction ON redrive_payments.intent (instruction_id, participant_id);

-- destination_hash: as that of an instruction, of what the statement says; NULL = it does not say.
ALTER TABLE redrive_payments.statement_entry ADD COLUMN destination_hash bytea;
CREATE INDEX statement_entry_stranger_token ON redrive_payments.statement_entry (rail_type, token) WHERE outbox_id IS NULL;
CREATE INDEX statement_entry_stranger_instruction ON redrive_payments.statement_entry (rail_type, instruction_id, participant_id)
    WHERE outbox_id IS NULL;

-- An entry stays what the rail said. It is linked to its intent once, and matched once.
CREATE FUNCTION redrive_payments.refuse_other_change() RETURNS trigger LANGUAGE plpgsql
AS $body$
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(OLD) - 'outbox_id' - 'matched_at' = to_jsonb(NEW) - 'outbox_id' - 'matched_at'
       AND (OLD.outbox_id IS NULL OR OLD.outbox_id = NEW.outbox_id)
       AND (OLD.matched_at IS NULL OR OLD.matched_at = NEW.matched_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% on redrive_payments.% is refused: an entry of a statement stays as it was read.', TG_OP, TG_TABLE_NAME
        USING ERRCODE = '42501';
END
$body$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON redrive_payments.statement_entry FOR EACH ROW EXECUTE FUNCTION redrive_payments.refuse_other_change();
CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON redrive_payments.statement_entry FOR EACH STATEMENT EXECUTE FUNCTION redrive.refuse_change();

-- Acknowledged by two people, with their evidence (a reversal, a refund): it is known, and does not keep a comparison from being clean.
-- acknowledged_hash: of the finding's evidence then; other evidence opens it again.
ALTER TABLE redrive_payments.finding ADD COLUMN acknowledged_at timestamptz;
ALTER TABLE redrive_payments.finding ADD COLUMN acknowledged_by text;
ALTER TABLE redrive_payments.finding ADD COLUMN acknowledged_reason text;
ALTER TABLE redrive_payments.finding ADD COLUMN acknowledged_reference text;
ALTER TABLE redrive_payments.finding ADD COLUMN acknowledged_hash bytea;
