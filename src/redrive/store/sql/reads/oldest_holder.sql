-- Who keeps dead rows alive: the session, prepared transaction or replication slot with the oldest snapshot that counts for
-- this database. Sessions of other databases do not count, but a standby that gives feedback does; VACUUM itself does not.
-- An autovacuum worker is known by its lack of a user: its type is hidden from a login that may not see other sessions.
-- since, state: empty where this login may not see them (pg_read_all_stats). age: in transactions.
SELECT h.kind, h.name, h.pid, h.application, h.state, h.since, h.age
  FROM (SELECT 'session' AS kind, NULL::text AS name, a.pid, a.application_name AS application, a.state,
               a.xact_start AS since, greatest(age(a.backend_xmin), age(a.backend_xid)) AS age
          FROM pg_stat_activity a
         WHERE (a.datname = current_database() OR a.backend_type = 'walsender') AND a.pid <> pg_backend_pid()
           AND a.usesysid IS NOT NULL AND coalesce(a.query, '') NOT LIKE 'VACUUM %%'
        UNION ALL
        SELECT 'prepared transaction', x.gid::text, NULL, NULL, NULL, x.prepared, age(x.transaction)
          FROM pg_prepared_xacts x WHERE x.database = current_database()
        UNION ALL
        SELECT 'replication slot', s.slot_name::text, s.active_pid, NULL,
               CASE WHEN s.active THEN 'active' ELSE 'inactive' END, NULL, age(s.xmin)
          FROM pg_replication_slots s) h
 WHERE h.age IS NOT NULL
 ORDER BY h.age DESC, h.since
 LIMIT 1
