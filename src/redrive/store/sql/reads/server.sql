-- What a server is like, as far as this login may see it: for `redrive doctor`.
-- partition_end: up to when messages have a partition of their own. slots: replication slots that nobody reads, with the
-- bytes of WAL that they keep.
SELECT clock_timestamp() AS at,
       current_setting('server_version_num')::int AS version,
       current_setting('server_version') AS version_text,
       current_user::text AS login,
       (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) AS is_superuser,
       pg_is_in_recovery() AS is_standby,
       current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean AS has_autovacuum,
       ARRAY(SELECT r.rolname::text FROM pg_roles r
              WHERE r.rolname LIKE 'redrive\_%%' AND pg_has_role(current_user, r.oid, 'USAGE')
              ORDER BY r.rolname) AS roles,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_sessions,
       (SELECT max(p.ends_at) FROM redrive.partition_range p) AS partition_end,
       ARRAY(SELECT s.slot_name::text FROM pg_replication_slots s
              WHERE NOT s.active AND s.restart_lsn IS NOT NULL ORDER BY s.slot_name) AS idle_slots,
       (SELECT jsonb_object_agg(d.name, d.versions)
          FROM (SELECT p.key AS name, array_agg(DISTINCT p.value ORDER BY p.value) AS versions
                  FROM redrive.relay r CROSS JOIN LATERAL json_each_text(r.policies) p
                 WHERE r.seen_at > clock_timestamp() - make_interval(secs => %(live_seconds)s)
                 GROUP BY p.key HAVING count(DISTINCT p.value) > 1) d) AS differing_policies
