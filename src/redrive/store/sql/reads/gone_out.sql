-- Of these parked messages those whose ordering key went on without them: how many later ones of the key went out.
-- Relies on: parked's primary key; gone_out_after, which reads what waits of the key.
SELECT k.id, g.gone_out
  FROM redrive.parked k
 CROSS JOIN LATERAL (SELECT redrive.gone_out_after(k.lane, k.sequence) AS gone_out OFFSET 0) g
 WHERE k.id = ANY (%(ids)s::uuid[]) AND k.lane IS NOT NULL AND g.gone_out > 0
