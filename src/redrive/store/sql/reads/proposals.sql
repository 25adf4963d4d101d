-- What one person has asked to be done to these subjects and a second one has to ask for too.
-- Relies on: proposal's primary key.
SELECT p.subject, p.asked_by
  FROM unnest(%(subjects)s::text[]) AS s (subject)
 CROSS JOIN LATERAL (SELECT x.subject, x.asked_by FROM redrive.proposal x
                      WHERE x.act = %(act)s AND x.subject = s.subject LIMIT 1) p
