-- redrive: after deliver
-- Reconciliation of deliveries with their providers (R-07, R-12). The duty asks the provider; these functions write what follows.

-- open_deliveries: what is not verified, behind a row: with the state of its message, the token that it was last sent with (an edited
-- message has another one), and since when it is as it is. What a person has to decide and what was never tried are left out.
-- Relies on: delivery_open.
CREATE OR REPLACE FUNCTION redrive_reviews.open_deliveries_1(p_provider text, p_after text[], p_limit integer)
RETURNS TABLE (place text[], message_id uuid, token uuid, state text, notification_id text, notified_at timestamptz,
               has_evidence boolean, reference text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT ARRAY[d.tenant, d.changelist_id, d.recipient, d.review_version::text], d.message_id,
           coalesce((SELECT a.token FROM redrive.attempt a WHERE a.message_id = d.message_id AND a.token IS NOT NULL
                      ORDER BY a.attempt DESC LIMIT 1),
                    redrive.token_for(d.message_id, 1, 'first'), d.message_id),
           redrive_reviews.state_of_message(d.message_id),
           d.notification_id, d.notified_at, d.evidence IS NOT NULL,
           (SELECT a.reference FROM redrive.attempt a WHERE a.message_id = d.message_id AND a.closed = 'delivered' LIMIT 1)
      FROM delivery d
     WHERE d.verified_at IS NULL AND d.provider = p_provider AND d.message_id IS NOT NULL AND d.status <> 'held'
       AND NOT (d.notified_at IS NULL AND d.notification_id IS NULL
                AND EXISTS (SELECT 1 FROM redrive.pending p WHERE p.id = d.message_id AND p.attempt = 0))
       AND (p_after IS NULL OR (d.tenant, d.changelist_id, d.recipient, d.review_version)
                               > (p_after[1], p_after[2], p_after[3], p_after[4]::integer))
     ORDER BY d.tenant, d.changelist_id, d.recipient, d.review_version
     LIMIT p_limit;
END $body$;

-- verified: the provider has it. Where our row did not know (a message closed by a person, a lost write), it is written now.
-- A message that is still parked or waits is confirmed with the provider's id, and is not sent again.
CREATE OR REPLACE FUNCTION redrive_reviews.verified_1(
    p_message_id uuid, p_notification_id text, p_evidence json, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
DECLARE v_now    timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_before text := redrive_reviews.state_of_message(p_message_id);
BEGIN
    IF v_before IN ('dead', 'held') THEN
        IF redrive.confirm_1(p_message_id, 'reconciliation', 'the provider has it', p_notification_id, v_now) <> 'done' THEN
            RETURN v_before;
        END IF;
    END IF;
    PERFORM redrive_reviews.mark_sent_1(p_message_id, p_notification_id, p_evidence, v_now);
    UPDATE delivery d SET verified_at = v_now WHERE d.message_id = p_message_id AND v_before <> 'pending';
    RETURN 'done';
END $body$;

-- closed_by_person: a person confirmed that it was sent: the row follows. What cannot be asked is verified by that.
CREATE OR REPLACE FUNCTION redrive_reviews.closed_by_person_1(p_message_id uuid, p_reference text, p_now timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
BEGIN
    PERFORM redrive_reviews.mark_sent_1(p_message_id, p_reference, '{"by": "a person"}', p_now);
END $body$;

-- accepted_is_enough: a provider that cannot be asked has accepted it, with a reply that is kept: that is the evidence.
CREATE OR REPLACE FUNCTION redrive_reviews.accepted_is_enough_1(p_message_id uuid, p_now timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
BEGIN
    UPDATE delivery d SET verified_at = coalesce(redrive.allowed_now(p_now), clock_timestamp())
     WHERE d.message_id = p_message_id AND d.notified_at IS NOT NULL AND d.evidence IS NOT NULL;
END $body$;

-- sent_without_record: marked as sent, and the provider has no record (p_repair = 'requeued': the marks are cleared, and it is sent),
-- or nothing can be asked and no acceptance was kept ('held': a person decides). Answers 'done', or 'changed' where the row is no longer
-- as it was read, or its message is in a relay's hand.
-- A message that is over is sent again by a new one with the same token; one that still waits goes on by itself.
-- Locks: the delivery, then its job, then as enqueue does.
CREATE OR REPLACE FUNCTION redrive_reviews.sent_without_record_1(
    p_message_id uuid, p_notified_at timestamptz, p_repair text, p_own_send boolean DEFAULT false, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
DECLARE v_now      timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_delivery redrive_reviews.delivery;
        v_state    text;
BEGIN
    SELECT * INTO v_delivery FROM delivery d WHERE d.message_id = p_message_id FOR UPDATE;
    v_state := redrive_reviews.state_of_message(p_message_id);
    IF v_delivery.notified_at IS DISTINCT FROM p_notified_at OR (v_state = 'leased' AND NOT p_own_send) THEN
        RETURN 'changed';
    END IF;
    INSERT INTO violation (tenant, changelist_id, recipient, review_version, provider, notification_id, notified_at, repair, found_at)
    VALUES (v_delivery.tenant, v_delivery.changelist_id, v_delivery.recipient, v_delivery.review_version, v_delivery.provider,
            v_delivery.notification_id, v_delivery.notified_at, p_repair, v_now);
    -- Only a required recipient keeps a job from succeeding (R-08): nothing would finish it again if an optional one failed now.
    UPDATE job j SET succeeded_at = NULL WHERE j.job_id = v_delivery.job_id AND v_delivery.required;
    UPDATE delivery d SET notification_id = NULL, notified_at = NULL, evidence = NULL, verified_at = NULL,
                          -- A message that is not over yet says itself whether it is held.
                          status = CASE WHEN p_repair = 'held' AND v_state NOT IN ('pending', 'leased', 'dead', 'held', 'unrecorded')
                                        THEN 'held' ELSE 'queued' END
     WHERE d.message_id = p_message_id;
    IF p_repair = 'requeued' AND v_state NOT IN ('pending', 'leased') THEN
        PERFORM redrive_reviews.send_again(p_message_id, v_now);
    END IF;
    RETURN 'done';
END $body$;

-- send_again: a new message with the bytes (as they were last edited), the destination and the token seed of the one that is over. What
-- is parked is discarded with it.
CREATE OR REPLACE FUNCTION redrive_reviews.send_again(p_message_id uuid, p_now timestamptz) RETURNS uuid
LANGUAGE plpgsql SET search_path = redrive_reviews, redrive, pg_temp AS $body$
DECLARE v_old    redrive.message;
        v_body   redrive.body;
        v_triple redrive_reviews.delivery_message;
        v_new    record;
BEGIN
    SELECT * INTO STRICT v_old FROM redrive.message m WHERE m.id = p_message_id;
    SELECT * INTO v_body FROM redrive.body b WHERE b.message_id = p_message_id ORDER BY b.version DESC LIMIT 1;
    SELECT * INTO STRICT v_triple FROM delivery_message t WHERE t.message_id = p_message_id;
    IF EXISTS (SELECT 1 FROM redrive.parked k WHERE k.id = p_message_id) THEN
        IF redrive.discard_1(p_message_id, 'reconciliation', 'it is sent again as a new message', p_now) <> 'done' THEN
            RAISE EXCEPTION 'Message % cannot be discarded, so it is not sent again.', p_message_id USING ERRCODE = '55000';
        END IF;
    END IF;
    SELECT * INTO STRICT v_new
      FROM redrive.enqueue_internal(v_old.destination, coalesce(v_body.bytes, v_old.body), 'again:' || p_message_id, v_old.tenant, v_old.kind,
                                    v_old.content_type, v_old.headers, NULL, NULL, v_old.level, NULL, p_now, v_old.token_seed) e;
    PERFORM redrive_reviews.queued_1(v_triple.tenant, v_triple.changelist_id, v_triple.recipient, v_triple.review_version, v_new.id,
                                     (SELECT d.on_replay FROM delivery d WHERE d.message_id = p_message_id), p_now);
    RETURN v_new.id;
END $body$;

-- decide: a person says what became of a delivery that is held without a message to confirm: it was sent, or it is sent again.
-- Answers 'done', 'not_found', or the state where it is not held.
CREATE OR REPLACE FUNCTION redrive_reviews.decide_1(
    p_tenant text, p_changelist_id text, p_recipient text, p_review_version integer, p_was_sent boolean, p_actor text,
    p_reason text, p_now timestamptz DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
DECLARE v_now      timestamptz := coalesce(redrive.allowed_now(p_now), clock_timestamp());
        v_delivery redrive_reviews.delivery;
BEGIN
    SELECT * INTO v_delivery FROM delivery d
     WHERE (d.tenant, d.changelist_id, d.recipient, d.review_version) = (p_tenant, p_changelist_id, p_recipient, p_review_version)
       FOR UPDATE;
    IF NOT FOUND THEN RETURN 'not_found'; END IF;
    IF v_delivery.status <> 'held' THEN 
        RETURN redrive_reviews.state_of_delivery(v_delivery.notified_at, v_delivery.message_id, v_delivery.status);
    END IF;
    UPDATE delivery d SET decided_by = p_actor WHERE d.message_id = v_delivery.message_id;
    IF p_was_sent THEN
        PERFORM redrive_reviews.mark_sent_1(v_delivery.message_id, NULL,
                                            json_build_object('by', 'a person', 'reason', left(p_reason, 500)), v_now);
    ELSE
        PERFORM redrive_reviews.send_again(v_delivery.message_id, v_now);
    END IF;
    RETURN 'done';
END $body$;
