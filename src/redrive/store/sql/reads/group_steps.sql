-- How far people have got with the dead letters of a failure group; at most `most` of them are counted.
-- Relies on: parked_group.
SELECT k.workflow, count(*) AS messages, count(*) FILTER (WHERE k.in_doubt_since IS NOT NULL) AS in_doubt,
       count(*) FILTER (WHERE k.edited) AS edited, count(*) FILTER (WHERE k.escalated) AS escalated,
       count(DISTINCT k.tenant) AS tenants, min(k.cause) AS cause, min(k.parked_at) AS since
  FROM (SELECT x.workflow, x.in_doubt_since, x.edited, x.escalated, x.tenant, x.cause, x.parked_at
          FROM redrive.parked x
         WHERE x.failure_group = %(fingerprint)s AND x.reason = 'dead'
         LIMIT %(most)s) k
 GROUP BY k.workflow
