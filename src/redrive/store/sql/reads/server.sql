-- What a server is like, for `redrive doctor`. Every login may ask it. idle_slots: replication slots without a reader.
SELECT clock_timestamp() AS at,
       current_setting('server_version_num')::int AS version,
       current_setting('server_version') AS version_text,
       current_user::text AS login,
       (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) AS is_superuser,
       pg_is_in_recovery() AS is_standby,
       current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean AS has_autovacuum,
       current_setting('synchronous_commit') <> 'off' AS commits_synchronously,
       ARRAY(SELECT r.rolname::text FROM pg_roles r
              WHERE r.rolname IN ('redrive_producer', 'redrive_relay', 'redrive_operator', 'redrive_viewer',
                                  'redrive_auditor') AND pg_has_role(current_user, r.oid, 'USAGE')
              ORDER BY r.rolname) AS roles,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_sessions,
       ARRAY(SELECT s.slot_name::text FROM pg_replication_slots s
              WHERE NOT s.active AND s.restart_lsn IS NOT NULL ORDER BY s.slot_name) AS idle_slots
