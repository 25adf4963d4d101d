-- A number that changes when anything changes that a screen shows. From the server's counters, which follow within about a
-- second: however much waits, it is a handful of rows, and no table is read.
SELECT coalesce(sum(s.n_tup_ins + s.n_tup_upd + s.n_tup_del), 0)::bigint AS changes
  FROM pg_stat_all_tables s
 WHERE s.schemaname = 'redrive'
   AND s.relname IN ('pending', 'lease', 'parked', 'operator_action', 'replay', 'replay_item', 'destination', 'request')
