-- The moment that a report is about (the database's clock unless a test says otherwise), how many outcomes were refused
-- and how many lanes mended so far.
SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at,
       (SELECT count(*) FROM redrive.late_answer) AS late_answers,
       (SELECT coalesce(sum(d.mended), 0)::bigint FROM redrive.duty d) AS lanes_mended
