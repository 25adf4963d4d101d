-- redrive: after category, states
-- What people and metrics read. A reader sees what its role and tenant may see of the engine's tables and of these. No payload, no finding's text and no diff is in them.

-- shown_recipient: the whole address for operators and the owner, the domain for all others: an address is personal data (G-15).
CREATE OR REPLACE FUNCTION redrive_reviews.shown_recipient(p_recipient text) RETURNS text LANGUAGE sql STABLE AS $body$
    SELECT CASE WHEN pg_has_role(current_user, 'redrive_operator', 'USAGE') THEN p_recipient
                ELSE '…@' || split_part(p_recipient, '@', 2) END
$body$;

-- may_read: what row security says of a tenant's rows, for views that read with the rights of their owner: one tenant or all for
-- readers, everything for the owner.
CREATE OR REPLACE FUNCTION redrive_reviews.may_read(p_tenant text) RETURNS boolean LANGUAGE sql STABLE AS $body$
    SELECT coalesce(current_setting('redrive.tenant', true) IN (p_tenant, '*'), false)
        OR pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = 'redrive_reviews.delivery'::regclass), 'USAGE')
$body$;

-- Recipients and where the notification of each is, without the kept acceptance. attempts: of all messages of the triple (R-11).
-- Not a security-invoker view, because a viewer may read no recipient of the table: it limits rows and masks addresses itself.
CREATE OR REPLACE VIEW redrive_reviews.deliveries WITH (security_barrier = true) AS
SELECT d.tenant, d.changelist_id, redrive_reviews.shown_recipient(d.recipient) AS recipient, d.review_version, d.job_id, d.provider,
       d.required, redrive_reviews.state_of_delivery(d.notified_at, d.message_id, d.status) AS state, d.message_id, d.notification_id,
       d.notified_at, d.verified_at, d.error_class, d.decided_by, d.on_replay,
       (SELECT count(*) FROM redrive_reviews.delivery_message t JOIN redrive.attempt a ON a.message_id = t.message_id
         WHERE (t.tenant, t.changelist_id, t.recipient, t.review_version)
               = (d.tenant, d.changelist_id, d.recipient, d.review_version)
           AND a.verb IN ('settle', 'complete', 'reap')) AS attempts
  FROM redrive_reviews.delivery d
 WHERE redrive_reviews.may_read(d.tenant);

-- Every message that was made for a delivery, with its recipient as the reader may see it.
CREATE OR REPLACE VIEW redrive_reviews.delivery_messages WITH (security_barrier = true) AS
SELECT t.message_id, t.tenant, t.changelist_id, redrive_reviews.shown_recipient(t.recipient) AS recipient, t.review_version,
       t.created_at, d.notified_at
  FROM redrive_reviews.delivery_message t
  JOIN redrive_reviews.delivery d USING (tenant, changelist_id, recipient, review_version)
 WHERE redrive_reviews.may_read(t.tenant);

-- Every attempt of a delivery, by its triple (R-11): also those of messages that were made to send it again. An invoker's view on
-- one that masks.
DROP VIEW IF EXISTS redrive_reviews.delivery_attempts;
CREATE VIEW redrive_reviews.delivery_attempts WITH (security_invoker = true) AS
SELECT m.tenant, m.changelist_id, m.recipient, m.review_version, m.message_id, h.attempt, h.verb, h.answer, h.code, h.reference,
       h.in_doubt, h.actor, h.claimed_at, h.completed_at
  FROM redrive_reviews.delivery_messages m
  JOIN redrive.history h ON h.message_id = m.message_id;

-- Dead letters of reviews with the stage by its own name: the engine calls the first stage of every message `first`.
CREATE OR REPLACE VIEW redrive_reviews.dead_letters WITH (security_invoker = true) AS
SELECT k.id AS message_id, k.tenant, split_part(k.destination, '.', 2) AS stage, k.error_class,
       redrive_reviews.category_of(k.error_class) AS category, k.last_stack, k.context AS sanitized_context,
       k.first_failed_at AS first_failure_at, k.last_failed_at AS last_failure_at, k.workflow, k.cause, k.escalated
  FROM redrive.parked k
 WHERE k.reason = 'dead' AND starts_with(k.destination, 'reviews.');

-- count_dead: dead letters by stage and category, for the metrics; every pair is counted, so that its series begins at 0.
CREATE OR REPLACE FUNCTION redrive_reviews.count_dead_1() RETURNS TABLE (stage text, category text, letters bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
BEGIN
    RETURN QUERY
    SELECT s.stage, c.category,
           (SELECT count(*) FROM dead_letters k WHERE k.stage = s.stage AND k.category = c.category)
      FROM unnest(ARRAY['fetch', 'llm', 'notify']) AS s(stage)
     CROSS JOIN unnest(ARRAY['network', 'rate_limit', 'upstream', 'conflict', 'validation', 'auth', 'not_found', 'policy', 'defect',
                             'other']) AS c(category);
END $body$;

-- count_escalated: dead letters whose replay ended in the same class again.
CREATE OR REPLACE FUNCTION redrive_reviews.count_escalated_1() RETURNS TABLE (stage text, kind text, letters bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
BEGIN
    RETURN QUERY SELECT s.stage, 'escalated', (SELECT count(*) FROM dead_letters k WHERE k.stage = s.stage AND k.escalated)
                   FROM unnest(ARRAY['fetch', 'llm', 'notify']) AS s(stage);
END $body$;

-- count_violations: rows that were marked as sent while the provider had no record, of all time, by how they were repaired.
CREATE OR REPLACE FUNCTION redrive_reviews.count_violations_1() RETURNS TABLE (provider text, repair text, found bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive_reviews, redrive, pg_temp AS $body$
BEGIN
    RETURN QUERY SELECT p.provider, r.repair,
                        (SELECT count(*) FROM violation v WHERE v.provider = p.provider AND v.repair = r.repair)
                   FROM (SELECT DISTINCT d.provider FROM delivery d WHERE d.verified_at IS NULL
                          UNION SELECT v.provider FROM violation v) p
                  CROSS JOIN unnest(ARRAY['requeued', 'held']) AS r(repair);
END $body$;
