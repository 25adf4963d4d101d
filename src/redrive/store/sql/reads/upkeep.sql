-- What `redrive doctor` looks at in our own tables. partition_end: up to when messages have a partition of their own.
-- differing: destinations about whose rules live relays disagree. money: whether any destination moves money. unwitnessed: live relays that
-- send money and do not remember it over restarts. by_default: rows in the default partitions, counted up to a bound.
-- gone: of the oldest open messages so many have no row any more.
-- Relies on: the primary keys of pending, lease, parked and message, in the order of ids, and a probe for each.
SELECT (SELECT max(p.ends_at) FROM redrive.partition_range p) AS partition_end,
       ARRAY(SELECT p.key
               FROM redrive.relay r CROSS JOIN LATERAL json_each_text(r.policies) p
              WHERE r.seen_at > clock_timestamp() - make_interval(secs => %(live_seconds)s)
              GROUP BY p.key HAVING count(DISTINCT p.value) > 1
              ORDER BY p.key) AS differing,
       EXISTS (SELECT 1 FROM redrive.destination d WHERE d.money) AS money,
       ARRAY(SELECT r.name
               FROM redrive.relay r
              WHERE r.seen_at > clock_timestamp() - make_interval(secs => %(live_seconds)s) AND NOT r.suspects_only
                AND r.witness IS DISTINCT FROM 'file'
                AND EXISTS (SELECT 1 FROM redrive.destination d WHERE d.money AND d.name = ANY (r.destinations))
              ORDER BY r.name) AS unwitnessed,
       redrive.rows_in_default_1(%(by_default_max)s) AS by_default,
       (SELECT count(*)
          FROM ((SELECT p.id FROM redrive.pending p ORDER BY p.id LIMIT %(oldest)s)
                UNION ALL (SELECT l.id FROM redrive.lease l ORDER BY l.id LIMIT %(oldest)s)
                UNION ALL (SELECT k.id FROM redrive.parked k ORDER BY k.id LIMIT %(oldest)s)) o
         WHERE (SELECT true FROM redrive.message m WHERE m.id = o.id LIMIT 1) IS NULL)::integer AS gone
