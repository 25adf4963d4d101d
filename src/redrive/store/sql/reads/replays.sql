-- Replays, latest first, with what became of their messages. `id` = one of them, `name` = those of that name.
-- Relies on: the primary keys of replay and replay_item.
SELECT r.id, r.name, r.status, r.stop_reason, r.filter, r.stage, r.out_of_order, r.override, r.rate_per_second, r.canary,
       r.failure_ratio_max, r.created_at, r.created_by, r.reason, r.approved_by, r.finished_at, i.*
  FROM (SELECT * FROM redrive.replay x
         WHERE x.id < %(before)s AND (%(id)s::uuid IS NULL OR x.id = %(id)s) AND (%(name)s::text IS NULL OR x.name = %(name)s)
           AND (%(finished)s OR x.finished_at IS NULL)
         ORDER BY x.id DESC LIMIT %(limit)s) r
 CROSS JOIN LATERAL (
        SELECT count(*) AS messages, count(*) FILTER (WHERE o.outcome IS NULL) AS waiting,
               count(*) FILTER (WHERE o.outcome = 'requeued') AS under_way,
               count(*) FILTER (WHERE o.outcome = 'delivered') AS delivered,
               count(*) FILTER (WHERE o.outcome IN ('dead', 'held', 'unrecorded')) AS failed,
               count(*) FILTER (WHERE o.detail = 'same_class') AS same_class,
               count(*) FILTER (WHERE o.outcome = 'skipped') AS skipped,
               count(*) FILTER (WHERE o.verified_at IS NOT NULL) AS verified
          FROM redrive.replay_item o WHERE o.replay_id = r.id) i
 ORDER BY r.id DESC
