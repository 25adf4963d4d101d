-- The moment that a report is about (the database's clock unless a test says otherwise), how many outcomes were refused
-- and how many lanes mended so far. sees_no_tenant: row-level security applies to this login and no tenant was chosen, so every list is empty.
SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at,
       (SELECT count(*) FROM redrive.late_answer) AS late_answers,
       (SELECT coalesce(sum(d.mended), 0)::bigint FROM redrive.duty d) AS lanes_mended,
       row_security_active('redrive.pending')
           AND NOT (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = 'redrive.pending'::regclass)
           AND coalesce(current_setting('redrive.tenant', true), '') = '' AS sees_no_tenant
