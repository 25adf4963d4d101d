-- The moment that a report is about (the database's clock unless a test says otherwise), and how many outcomes were
-- refused so far.
SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at, (SELECT count(*) FROM redrive.late_answer) AS late_answers
