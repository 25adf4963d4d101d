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
-- An earlier version gave the verbs of the comparison to relays and operators.
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
DECLARE
    v_table text;
BEGIN
    FOREACH v_table IN ARRAY ARRAY['participant', 'instruction', 'intent', 'edited_terms'] LOOP
        EXECUTE format('ALTER TABLE redrive_payments.%I ENABLE ROW LEVEL SECURITY', v_table);
        EXECUTE format('ALTER TABLE redrive_payments.%I FORCE ROW LEVEL SECURITY', v_table);
        EXECUTE format('DROP POLICY IF EXISTS engine ON redrive_payments.%I', v_table);
        EXECUTE format('CREATE POLICY engine ON redrive_payments.%I TO %I USING (true) WITH CHECK (true)', v_table, current_user);
        EXECUTE format('DROP POLICY IF EXISTS tenant ON redrive_payments.%I', v_table);
        EXECUTE format('CREATE POLICY tenant ON redrive_payments.%I FOR SELECT TO redrive_viewer, redrive_operator, redrive_auditor '
                       'USING (current_setting(''redrive.tenant'', true) IN (tenant, ''*''))', v_table);
    END LOOP;
    -- A statement is of a rail, and so of all tenants: for who may see all.
    FOREACH v_table IN ARRAY ARRAY['statement_entry', 'reconciliation', 'unreconciled', 'finding'] LOOP
        EXECUTE format('ALTER TABLE redrive_payments.%I ENABLE ROW LEVEL SECURITY', v_table);
        EXECUTE format('ALTER TABLE redrive_payments.%I FORCE ROW LEVEL SECURITY', v_table);
        EXECUTE format('DROP POLICY IF EXISTS engine ON redrive_payments.%I', v_table);
        EXECUTE format('CREATE POLICY engine ON redrive_payments.%I TO %I USING (true) WITH CHECK (true)', v_table, current_user);
        EXECUTE format('DROP POLICY IF EXISTS everybody ON redrive_payments.%I', v_table);
        EXECUTE format('CREATE POLICY everybody ON redrive_payments.%I FOR SELECT TO redrive_viewer, redrive_operator, redrive_auditor '
                       'USING (current_setting(''redrive.tenant'', true) = ''*'')', v_table);
    END LOOP;
END
$row_security$;
