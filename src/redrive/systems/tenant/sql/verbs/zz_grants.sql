-- redrive: after insert, snapshot, options
-- Who may do what, by the roles of the engine (its zz_grants.sql). Producers insert; relays publish and read gauges; people read.
REVOKE ALL ON SCHEMA redrive_tenant FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA redrive_tenant FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA redrive_tenant FROM PUBLIC;
GRANT USAGE ON SCHEMA redrive_tenant TO redrive_producer, redrive_relay, redrive_operator, redrive_viewer, redrive_auditor;
-- SELECT too, for RETURNING; reading a row needs the rights on the engine's tables, which producers do not have.
GRANT SELECT, INSERT ON redrive_tenant.outbox_messages, redrive_tenant."OutboxMessages" TO redrive_producer;
GRANT EXECUTE ON FUNCTION redrive_tenant.insert_event, redrive_tenant."InsertEvent", redrive_tenant.time_of TO redrive_producer;
GRANT EXECUTE ON FUNCTION redrive_tenant.publish_options_1, redrive_tenant.gauges_1 TO redrive_relay;
GRANT SELECT ON redrive_tenant.states, redrive_tenant.outbox_messages, redrive_tenant."OutboxMessages", redrive_tenant.outbox
    TO redrive_viewer, redrive_operator, redrive_auditor;
-- Payloads are for these two, as in the engine.
GRANT USAGE ON SCHEMA redrive_tenant TO redrive_console, redrive_approver;
GRANT EXECUTE ON FUNCTION redrive_tenant.payload_of, redrive_tenant.key_of, redrive_tenant.time_of, redrive_tenant.last_error, redrive_tenant.snapshot
    TO redrive_viewer, redrive_operator, redrive_auditor;
