-- The roles of the systems whose destinations relays have declared, and whether this login is a member of each.
SELECT r.rolname::text AS role, pg_has_role(current_user, r.oid, 'USAGE') AS is_member
  FROM unnest(redrive.systems_in_use_1()) AS s(system)
  JOIN pg_roles r ON r.rolname = 'redrive_' || s.system
 ORDER BY r.rolname
