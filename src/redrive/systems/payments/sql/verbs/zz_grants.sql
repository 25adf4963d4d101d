-- redrive: after views
-- Who may do what: as with the engine's own tables (its zz_grants.sql), by the same roles.
REVOKE ALL ON SCHEMA redrive_payments FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA redrive_payments FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA redrive_payments FROM PUBLIC;
GRANT USAGE ON SCHEMA redrive_payments TO redrive_producer, redrive_relay, redrive_operator, redrive_viewer, redrive_auditor;
GRANT EXECUTE ON FUNCTION redrive_payments.submit_1, redrive_payments.add_participant_1, redrive_payments.bump_participant_outbox_seq
    TO redrive_producer;
GRANT EXECUTE ON FUNCTION redrive_payments.state_of_attempt TO redrive_viewer, redrive_operator, redrive_auditor, redrive_relay;
GRANT SELECT ON redrive_payments.participant, redrive_payments.instruction, redrive_payments.intent, redrive_payments.intents, redrive_payments.payment_outbox_pending,
    redrive_payments.payment_outbox_attempts, redrive_payments.participant_outbox_sequences
    TO redrive_viewer, redrive_operator, redrive_auditor;

DO $row_security$
DECLARE
    v_table text;
BEGIN
    FOREACH v_table IN ARRAY ARRAY['participant', 'instruction', 'intent'] LOOP
        EXECUTE format('ALTER TABLE redrive_payments.%I ENABLE ROW LEVEL SECURITY', v_table);
        EXECUTE format('ALTER TABLE redrive_payments.%I FORCE ROW LEVEL SECURITY', v_table);
        EXECUTE format('DROP POLICY IF EXISTS engine ON redrive_payments.%I', v_table);
        EXECUTE format('CREATE POLICY engine ON redrive_payments.%I TO %I USING (true) WITH CHECK (true)', v_table, current_user);
        EXECUTE format('DROP POLICY IF EXISTS tenant ON redrive_payments.%I', v_table);
        EXECUTE format('CREATE POLICY tenant ON redrive_payments.%I FOR SELECT TO redrive_viewer, redrive_operator, redrive_auditor '
                       'USING (current_setting(''redrive.tenant'', true) IN (tenant, ''*''))', v_table);
    END LOOP;
END
$row_security$;
