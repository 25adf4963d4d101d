-- redrive: after views
-- Who may do what: by the engine's own roles (its zz_grants.sql). Producers submit; relays settle and reconcile; people read, and operators
-- decide what is held.
REVOKE ALL ON SCHEMA redrive_reviews FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA redrive_reviews FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA redrive_reviews FROM PUBLIC, redrive_producer, redrive_relay, redrive_operator, redrive_viewer,
    redrive_auditor;
GRANT USAGE ON SCHEMA redrive_reviews TO redrive_producer, redrive_relay, redrive_operator, redrive_viewer, redrive_auditor;
-- An operator submits over HTTP, in the tenant that the API has checked.
GRANT EXECUTE ON FUNCTION redrive_reviews.submit_1, redrive_reviews.earlier_1, redrive_reviews.earlier_2 TO redrive_producer, redrive_operator;
GRANT EXECUTE ON FUNCTION redrive_reviews.review_done_1, redrive_reviews.queued_1, redrive_reviews.delivery_of_1,
    redrive_reviews.mark_sent_1, redrive_reviews.mark_failed_1, redrive_reviews.open_deliveries_1, redrive_reviews.verified_1,
    redrive_reviews.keep_diff_1, redrive_reviews.diff_of_1, redrive_reviews.keep_findings_1, redrive_reviews.findings_of_1,
    redrive_reviews.closed_by_person_1, redrive_reviews.accepted_is_enough_1, redrive_reviews.sent_without_record_1
    TO redrive_relay;
GRANT EXECUTE ON FUNCTION redrive_reviews.decide_1 TO redrive_operator;
GRANT EXECUTE ON FUNCTION redrive_reviews.count_dead_1, redrive_reviews.count_escalated_1, redrive_reviews.count_violations_1
    TO redrive_relay, redrive_operator;
GRANT EXECUTE ON FUNCTION redrive_reviews.state_of_message, redrive_reviews.state_of_delivery, redrive_reviews.state_of_job,
    redrive_reviews.category_of, redrive_reviews.shown_recipient, redrive_reviews.may_read
    TO redrive_viewer, redrive_operator, redrive_auditor;
GRANT SELECT ON redrive_reviews.changelist, redrive_reviews.job, redrive_reviews.deliveries, redrive_reviews.delivery_messages,
    redrive_reviews.delivery_attempts, redrive_reviews.dead_letters
    TO redrive_viewer, redrive_operator, redrive_auditor;
-- Addresses are personal data (G-15): of these tables only operators read them; the others read the views, where they are masked.
GRANT SELECT ON redrive_reviews.delivery, redrive_reviews.delivery_message, redrive_reviews.violation TO redrive_operator;
GRANT SELECT (tenant, changelist_id, review_version, job_id, provider, required, status, message_id, notified_at, verified_at,
              error_class, decided_by, on_replay)
    ON redrive_reviews.delivery TO redrive_viewer, redrive_auditor;
GRANT SELECT (message_id, tenant, changelist_id, review_version, created_at)
    ON redrive_reviews.delivery_message TO redrive_viewer, redrive_auditor;
GRANT SELECT (position, tenant, changelist_id, review_version, provider, notified_at, repair, found_at)
    ON redrive_reviews.violation TO redrive_viewer, redrive_auditor;

DO $row_security$
BEGIN
    PERFORM redrive.limit_rows(t, 'current_setting(''redrive.tenant'', true) IN (tenant, ''*'')')
       FROM unnest(ARRAY['changelist', 'job', 'delivery', 'delivery_message', 'violation']) AS u(name),
            to_regclass('redrive_reviews.' || u.name) AS t;
END $row_security$;
