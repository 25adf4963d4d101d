-- redrive: after views
-- Who may do what: as with the engine's own tables (its zz_grants.sql), by the same roles, and one more. redrive_payments compares the
-- books: it writes what the rails say and what follows from it (evidence, late successes, the end of a pause). It is for the login of
-- relays that run the rails, and for no person's: a statement entry that a person could write would confirm a payment without a second one (P-13).
DO $roles$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'redrive_payments') THEN
        CREATE ROLE redrive_payments NOLOGIN NOSUPERUSER NOBYPASSRLS;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;  -- another database of this server made it at the same moment
END
$roles$;
REVOKE ALL ON SCHEMA redrive_payments FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA redrive_payments FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA redrive_payments FROM PUBLIC, redrive_producer, redrive_relay, redrive_operator, redrive_viewer,
    redrive_auditor, redrive_payments;
GRANT USAGE ON SCHEMA redrive_payments TO redrive_producer, redrive_relay, redrive_operator, redrive_viewer, redrive_auditor,
    redrive_payments;
GRANT EXECUTE ON FUNCTION redrive_payments.submit_1, redrive_payments.add_participant_1, redrive_payments.bump_participant_outbox_seq
    TO redrive_producer;
GRANT EXECUTE ON FUNCTION redrive_payments.statement_cursor_1, redrive_payments.keep_statement_1, redrive_payments.open_payments_1,
    redrive_payments.entries_1, redrive_payments.strangers_1, redrive_payments.agree_1, redrive_payments.confirm_late_1,
    redrive_payments.link_strangers_1, redrive_payments.compared_1
    TO redrive_payments;
GRANT EXECUTE ON FUNCTION redrive_payments.count_findings_1 TO redrive_payments, redrive_relay, redrive_operator;
GRANT EXECUTE ON FUNCTION redrive_payments.acknowledge_finding_1 TO redrive_operator;
-- `redrive payments reconcile` looks whether the schema fits its version.
GRANT USAGE ON SCHEMA redrive TO redrive_payments;
GRANT SELECT ON redrive.schema_version TO redrive_payments;
GRANT EXECUTE ON FUNCTION redrive_payments.state_of_attempt TO redrive_viewer, redrive_operator, redrive_auditor, redrive_relay;
GRANT EXECUTE ON FUNCTION redrive_payments.terms_json TO redrive_viewer, redrive_operator, redrive_auditor;
GRANT SELECT ON redrive_payments.participant, redrive_payments.instruction, redrive_payments.intent, redrive_payments.intents, redrive_payments.payment_outbox_pending,
    redrive_payments.payment_outbox_attempts, redrive_payments.participant_outbox_sequences, redrive_payments.statement_entry,
    redrive_payments.reconciliation, redrive_payments.unreconciled, redrive_payments.finding, redrive_payments.edited_terms,
    redrive_payments.terms
    TO redrive_viewer, redrive_operator, redrive_auditor;

DO $row_security$
BEGIN
    PERFORM redrive.limit_rows(t, 'current_setting(''redrive.tenant'', true) IN (tenant, ''*'')')
       FROM unnest(ARRAY['participant', 'instruction', 'intent', 'edited_terms']) AS u(name), to_regclass('redrive_payments.' || u.name) AS t;
    -- A statement belongs to a rail, and so to all tenants: only a reader of all tenants sees it.
    PERFORM redrive.limit_rows(t, 'current_setting(''redrive.tenant'', true) = ''*''')
       FROM unnest(ARRAY['statement_entry', 'reconciliation', 'unreconciled', 'finding']) AS u(name), to_regclass('redrive_payments.' || u.name) AS t;
END $row_security$;
