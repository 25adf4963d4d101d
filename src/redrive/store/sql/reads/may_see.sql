-- Whether row-level security shows this login any message at all, and whether a tenant was chosen. Its lists are empty without that,
-- however much there is. A policy counts if it is for a role of this login; the one of readers only once a tenant was chosen.
WITH chosen AS (SELECT coalesce(current_setting('redrive.tenant', true), '') <> '' AS tenant)
SELECT c.tenant AS has_tenant,
       NOT row_security_active('redrive.parked')
       OR EXISTS (SELECT 1 FROM pg_policy p
                   WHERE p.polrelid = 'redrive.parked'::regclass AND (c.tenant OR p.polname <> 'tenant')
                     AND EXISTS (SELECT 1 FROM unnest(p.polroles) AS r (role) WHERE r.role = 0 OR pg_has_role(r.role, 'USAGE')))
           AS sees
  FROM chosen c
