-- The destinations of payments belong to payments: only submit_1 and adopt_1 put a message there (P-13).
INSERT INTO redrive.destination_owner (prefix, system) VALUES ('payments.', 'payments') ON CONFLICT DO NOTHING;

-- The terms that a payload of a payment has. destination_hash: as in `instruction`. destination_shown: all but the last characters
-- hidden, as redrive.systems.payments.validation.hidden does it; a name is shown. All NULL where the payload has no such terms.
CREATE FUNCTION redrive_payments.terms_in(
    p_body bytea, OUT amount numeric, OUT currency text, OUT destination_hash bytea, OUT destination_shown json
) LANGUAGE plpgsql STABLE
AS $body$
DECLARE
    v_payload json;
BEGIN
    v_payload := convert_from(p_body, 'UTF8')::json;
    amount := (v_payload ->> 'amount')::numeric;
    currency := v_payload ->> 'currency';
    SELECT sha256(convert_to('{' || string_agg(to_json(f.key) || ':' || to_json(f.value), ',' ORDER BY f.key COLLATE "C") || '}', 'UTF8')),
           json_object_agg(f.key, CASE WHEN f.key = 'name' THEN f.value
                                       WHEN char_length(f.value) > 8 THEN '…' || right(f.value, 4)
                                       ELSE '…' END ORDER BY f.key COLLATE "C")
      INTO destination_hash, destination_shown
      FROM json_each_text(v_payload -> 'destination') AS f;
EXCEPTION WHEN data_exception OR null_value_not_allowed THEN
    SELECT NULL, NULL, NULL, NULL INTO amount, currency, destination_hash, destination_shown;
END
$body$;

-- What each edited version of a payment says, without its account number: the first version is the instruction's.
CREATE TABLE redrive_payments.edited_terms (
    outbox_id         uuid        NOT NULL,
    version           integer     NOT NULL CHECK (version >= 2),
    tenant            text        NOT NULL,
    amount            numeric,
    currency          text,
    destination_hash  bytea,
    destination_shown json,
    edited_at         timestamptz NOT NULL,
    edited_by         text        NOT NULL,
    PRIMARY KEY (outbox_id, version)
);
INSERT INTO redrive_payments.edited_terms
SELECT b.message_id, b.version, i.tenant, t.amount, t.currency, t.destination_hash, t.destination_shown, b.created_at, b.created_by
  FROM redrive.body b
  JOIN redrive_payments.intent i ON i.outbox_id = b.message_id
 CROSS JOIN LATERAL redrive_payments.terms_in(b.bytes) t;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON redrive_payments.edited_terms FOR EACH ROW EXECUTE FUNCTION redrive.refuse_change();
CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON redrive_payments.edited_terms FOR EACH STATEMENT EXECUTE FUNCTION redrive.refuse_change();

CREATE FUNCTION redrive_payments.keep_terms() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = redrive_payments, pg_temp
AS $body$
BEGIN
    INSERT INTO edited_terms (outbox_id, version, tenant, amount, currency, destination_hash, destination_shown, edited_at, edited_by)
    SELECT NEW.message_id, NEW.version, i.tenant, t.amount, t.currency, t.destination_hash, t.destination_shown, NEW.created_at,
           NEW.created_by
      FROM intent i
     CROSS JOIN LATERAL redrive_payments.terms_in(NEW.bytes) t
     WHERE i.outbox_id = NEW.message_id;
    RETURN NULL;
END
$body$;
CREATE TRIGGER payments_keep_terms AFTER INSERT ON redrive.body FOR EACH ROW EXECUTE FUNCTION redrive_payments.keep_terms();
