-- What was really sent: an edit changes the terms of a payment, and an attempt has those of its version.

-- The terms of every version of every payment.
CREATE OR REPLACE VIEW redrive_payments.terms WITH (security_invoker = true) AS
SELECT i.outbox_id, 1 AS version, i.tenant, n.amount, n.currency, n.destination_hash, n.destination_shown
  FROM redrive_payments.intent i
  JOIN redrive_payments.instruction n ON n.tenant = i.tenant AND n.instruction_id = i.instruction_id
UNION ALL
SELECT e.outbox_id, e.version, e.tenant, e.amount, e.currency, e.destination_hash, e.destination_shown
  FROM redrive_payments.edited_terms e;

-- terms_json: as people read them; NULL where the payload of that version has none.
CREATE OR REPLACE FUNCTION redrive_payments.terms_json(p_amount numeric, p_currency text, p_destination_shown json) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT jsonb_build_object('amount', p_amount::text, 'currency', p_currency, 'destination', p_destination_shown)
$body$;

-- version_of: the version of a payment that was sent under a token; NULL where no attempt used it. For the system's own functions.
-- Relies on: the archive's index by message.
CREATE OR REPLACE FUNCTION redrive_payments.version_of(p_outbox_id uuid, p_token text) RETURNS integer
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN (SELECT max(u.version)
              FROM (SELECT a.version, a.stage, a.token FROM redrive.attempt a WHERE a.message_id = p_outbox_id
                    UNION ALL
                    SELECT l.version, l.stage, l.token FROM redrive.lease l WHERE l.id = p_outbox_id) u
             WHERE coalesce(u.token, redrive.token_for(p_outbox_id, u.version, u.stage), p_outbox_id)::text = p_token);
END $body$;

-- terms_sent: the terms that a payment was sent with under a token; those of its first version where no attempt used that token.
-- destination_hash_of: the hash of the account, of one version. For the system's own functions.
CREATE OR REPLACE FUNCTION redrive_payments.terms_sent(
    p_outbox_id uuid, p_token text, OUT version integer, OUT amount numeric, OUT currency text, OUT destination_hash bytea,
    OUT destination_shown json
) LANGUAGE plpgsql STABLE AS $body$
#variable_conflict use_column
BEGIN
    SELECT t.version, t.amount, t.currency, t.destination_hash, t.destination_shown
      INTO version, amount, currency, destination_hash, destination_shown
      FROM redrive_payments.terms t
     WHERE t.outbox_id = p_outbox_id AND t.version = coalesce(redrive_payments.version_of(p_outbox_id, p_token), 1);
END $body$;

CREATE OR REPLACE FUNCTION redrive_payments.destination_hash_of(p_outbox_id uuid, p_version integer) RETURNS bytea
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN (SELECT t.destination_hash FROM redrive_payments.terms t WHERE t.outbox_id = p_outbox_id AND t.version = p_version);
END $body$;
