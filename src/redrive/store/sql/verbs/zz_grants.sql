-- redrive: after views
-- Who may do what. Producers and relays may only call verbs; people read views under row-level security and act by verbs;
-- only the owner touches a table. `redrive.tenant` limits a reader's session to one tenant, '*' means all.
DO $roles$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['redrive_producer', 'redrive_relay', 'redrive_operator', 'redrive_viewer',
                                  'redrive_auditor', 'redrive_console', 'redrive_approver'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = v_role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOBYPASSRLS', v_role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;  -- another database of this server made it at the same moment
            END;
        END IF;
    END LOOP;
END
$roles$;

REVOKE ALL ON SCHEMA redrive FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA redrive FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA redrive FROM PUBLIC;
GRANT USAGE ON SCHEMA redrive TO redrive_producer, redrive_relay, redrive_operator, redrive_viewer, redrive_auditor,
    redrive_console, redrive_approver;

GRANT EXECUTE ON FUNCTION
    redrive.enqueue_1, redrive.enqueue_many_1, redrive.cancel_1, redrive.status_1, redrive.inbox_receive_1, redrive.inbox_defer_1,
    redrive.inbox_reserve_1, redrive.inbox_fulfil_1
    TO redrive_producer;
GRANT EXECUTE ON FUNCTION
    redrive.enqueue_1, redrive.enqueue_many_1, redrive.cancel_1, redrive.status_1, redrive.claim_1, redrive.claim_suspect_1, redrive.suspect_destinations_1,
    redrive.fence_1,
    redrive.settle_1, redrive.settle_delivered_1, redrive.hand_back_1, redrive.renew_1, redrive.leases_1, redrive.reap_1, redrive.expire_1,
    redrive.register_1, redrive.heartbeat_1, redrive.deregister_1, redrive.forget_relays_1, redrive.begin_duty_1,
    redrive.end_duty_1, redrive.make_partitions_1, redrive.retire_1, redrive.pause_1, redrive.is_leased_1,
    redrive.ranges_1, redrive.check_claims_1, redrive.mend_lanes_1, redrive.announce_idle_1, redrive.low_water_1,
    redrive.open_breaker_1, redrive.close_breaker_1,
    redrive.pause_until_1, redrive.fold_failures_1, redrive.hold_duty_1, redrive.gauges_1, redrive.run_replay_1,
    redrive.take_requests_1, redrive.answer_request_1, redrive.observe_clock_1, redrive.clock_jumped_1, redrive.redate_1, redrive.database_id_1, redrive.witness_1,
    redrive.limit_keys_1, redrive.pause_key_1, redrive.rest_key_1, redrive.open_key_1, redrive.probe_key_1, redrive.close_key_1,
    redrive.book_key_1, redrive.inbox_receive_1, redrive.inbox_defer_1, redrive.inbox_reserve_1, redrive.inbox_fulfil_1,
    redrive.forget_inbox_1, redrive.heartbeat_worker_1, redrive.deregister_worker_1
    TO redrive_relay;
GRANT EXECUTE ON FUNCTION redrive.systems_in_use_1 TO redrive_relay, redrive_operator;
-- Before it starts, a relay looks whether the schema fits its version.
GRANT SELECT ON redrive.schema_version TO redrive_relay;
GRANT EXECUTE ON FUNCTION
    redrive.cancel_1, redrive.requeue_1, redrive.confirm_1, redrive.deny_1, redrive.repair_1, redrive.discard_1,
    redrive.pause_1, redrive.resume_1, redrive.declare_restored_1, redrive.skip_1, redrive.half_open_1, redrive.mark_group_1,
    redrive.triage_1, redrive.remediate_1, redrive.ignore_1, redrive.edit_1, redrive.validate_1, redrive.plan_replay_1,
    redrive.create_replay_1, redrive.steer_replay_1, redrive.verify_1, redrive.copy_1, redrive.pause_key_1, redrive.resume_key_1
    TO redrive_operator;

-- Readers. The payload is in no grant: reading it is a permission of its own.
GRANT EXECUTE ON FUNCTION redrive.state_of, redrive.is_paused, redrive.is_open, redrive.epoch_changed, redrive.breaker_state,
    redrive.earlier_attempts, redrive.action_hash, redrive.open_lanes, redrive.lane_head, redrive.gone_out_after, redrive.group_status,
    redrive.limit_keys_1, redrive.rows_in_default_1
    TO redrive_viewer, redrive_operator, redrive_auditor;
GRANT SELECT (id, created_at, expires_at, lane, sequence, level, tenant, destination, kind, key, order_by, source_id,
              content_type)
    ON redrive.message TO redrive_viewer, redrive_operator, redrive_auditor;
GRANT SELECT ON redrive.attempt, redrive.pending, redrive.lease, redrive.parked, redrive.destination, redrive.relay,
    redrive.duty, redrive.failure_group, redrive.failure_tally, redrive.late_answer, redrive.schema_version, redrive.partition_range,
    redrive.messages, redrive.history, redrive.conservation, redrive.stream, redrive.lane_wake, redrive.replay,
    redrive.replay_item, redrive.request, redrive.evidence, redrive.destination_owner,
    redrive.epoch, redrive.comparison, redrive.clock_jump, redrive.inbox, redrive.worker, redrive.consumer
    TO redrive_viewer, redrive_operator, redrive_auditor;
-- The payload that an edit proposes is not in this grant.
GRANT SELECT (act, subject, asked_by, asked_at, reason, binding, options, content_type) ON redrive.proposal
    TO redrive_viewer, redrive_operator, redrive_auditor;
GRANT SELECT (bytes) ON redrive.proposal TO redrive_console, redrive_approver;
GRANT SELECT ON redrive.operator_action TO redrive_operator, redrive_auditor;
GRANT SELECT ON redrive.idempotency TO redrive_auditor;
GRANT SELECT (tenant, key_hash, message_id) ON redrive.idempotency TO redrive_viewer, redrive_operator;

-- The console acts for people whom it has let in: it reads and does what they may, one tenant at a time, payloads included.
-- Its login is a member of redrive_console and of redrive_viewer; the owner is made one where that is possible.
GRANT EXECUTE ON FUNCTION
    redrive.create_token_1, redrive.revoke_token_1, redrive.find_token_1, redrive.log_in_1, redrive.find_session_1,
    redrive.log_out_1, redrive.has_token_1, redrive.list_tokens_1, redrive.note_access_1, redrive.begin_request_1,
    redrive.end_request_1
    TO redrive_console;
-- An approver does what an operator does, is the second person where money moves, and reads the payload that an edit proposes.
GRANT SELECT (body, headers) ON redrive.message TO redrive_console, redrive_approver;
GRANT SELECT ON redrive.body TO redrive_console, redrive_approver;
DO $console$
DECLARE
    v_given record;
    -- From 16 on the creator of a role is a member that may grant it, but may not yet SET ROLE to it.
    v_takes text := CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'set' ELSE 'member' END;
BEGIN
    -- A login of the console takes the role of the person for whom it acts: it must be able to take that of an approver. It could make
    -- itself an approver's access token in any case.
    FOR v_given IN SELECT * FROM (VALUES ('redrive_operator', 'redrive_console'), ('redrive_operator', 'redrive_approver'),
                                         ('redrive_console', current_user), ('redrive_viewer', current_user),
                                         ('redrive_approver', current_user)) AS v (role, member)
                   UNION ALL
                   SELECT 'redrive_approver', l.rolname FROM pg_auth_members a JOIN pg_roles l ON l.oid = a.member
                    WHERE l.rolcanlogin AND a.roleid = (SELECT c.oid FROM pg_roles c WHERE c.rolname = 'redrive_console') LOOP
        BEGIN
            IF NOT pg_has_role(v_given.member, v_given.role, v_takes) THEN
                EXECUTE format('GRANT %I TO %I', v_given.role, v_given.member);
            END IF;
        EXCEPTION WHEN insufficient_privilege OR unique_violation OR internal_error THEN
            NULL;  -- another login owns the roles, or another database of this server does the same at this moment
        END;
    END LOOP;
END
$console$;

-- From PostgreSQL 17 on vacuuming is a permission of its own: relays do it where autovacuum looks too seldom.
DO $vacuum$
BEGIN
    IF current_setting('server_version_num')::integer >= 170000 THEN
        EXECUTE 'GRANT MAINTAIN ON redrive.pending, redrive.lease, redrive.lane_wake TO redrive_relay';
    END IF;
END
$vacuum$;

DO $row_security$
BEGIN
    PERFORM redrive.limit_rows(t, 'current_setting(''redrive.tenant'', true) IN (tenant, ''*'')')
       FROM unnest(ARRAY['message', 'attempt', 'pending', 'lease', 'parked', 'idempotency', 'stream']) AS u(name),
            to_regclass('redrive.' || u.name) AS t;
    -- A replay belongs to the tenant that its filter names; to no single tenant where it names none.
    PERFORM redrive.limit_rows('redrive.replay', 'current_setting(''redrive.tenant'', true) IN (filter->>''tenant'', ''*'')');
    -- A row of the inbox names no tenant.
    PERFORM redrive.limit_rows('redrive.inbox', 'current_setting(''redrive.tenant'', true) = ''*''');
    PERFORM redrive.limit_rows('redrive.replay_item', 'EXISTS (SELECT 1 FROM redrive.replay r WHERE r.id = replay_id)');
END $row_security$;
