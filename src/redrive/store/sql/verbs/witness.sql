-- redrive: after epoch
-- witness: what relays remember of the money that they sent, outside this database. A database that does not know an attempt which a relay
-- began is older than what was sent: a base backup started without recovery target, a volume snapshot, a dump put back. Nothing inside
-- such a database tells it apart from the one that it is a copy of (P-10).

-- database_id: by which relays keep what they remember; copies and backups have the same.
CREATE OR REPLACE FUNCTION redrive.database_id_1() RETURNS uuid
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
BEGIN
    RETURN (SELECT i.id FROM identity i);
END $body$;

-- witness: whether this database knows what the relay remembers; if not, an epoch begins (epoch.sql). To be asked before the first claim of
-- money, with every heartbeat, and after every lost connection.
-- p_kept: in what it remembers, 'file' or 'memory'. p_remembers: false for a relay that has just begun and knows nothing from before.
-- p_ids, p_attempts, p_at: its last money attempts, and when each was claimed. p_system_identifier, p_wal_lsn, p_wal_at: which server it saw
-- last, how far its WAL was flushed, and when. What is older than the last epoch of all destinations is explained by that epoch.
-- restored: an epoch has just begun. unknown: how many attempts are not known here. closed: destinations whose statement has to be compared
-- before this relay claims for them: it remembers nothing, and no other relay that does has found since it started that all is known.
-- Locks: an advisory lock and as begin_epoch does, where something is not known; the relay's row.
CREATE OR REPLACE FUNCTION redrive.witness_1(
    p_worker uuid, p_kept text, p_remembers boolean, p_ids uuid[], p_attempts integer[], p_at timestamptz[],
    p_system_identifier bigint, p_wal_lsn text, p_wal_at timestamptz, p_now timestamptz DEFAULT NULL, OUT restored boolean,
    OUT unknown integer, OUT system_identifier bigint, OUT wal_lsn text, OUT at timestamptz, OUT closed text[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
#variable_conflict use_column
DECLARE v_behind boolean;
BEGIN
    at := coalesce(p_now, clock_timestamp());
    system_identifier := (SELECT p.system_identifier FROM redrive.present_epoch() p);
    wal_lsn := pg_current_wal_flush_lsn();
    unknown := redrive.unknown_attempts(p_ids, p_attempts, p_at);
    v_behind := redrive.is_behind(system_identifier, wal_lsn, p_system_identifier, p_wal_lsn, p_wal_at);
    restored := false;
    IF unknown > 0 OR v_behind THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('redrive.epoch', 0));
        unknown := redrive.unknown_attempts(p_ids, p_attempts, p_at);  -- a new look: another relay may have said so
        v_behind := redrive.is_behind(system_identifier, wal_lsn, p_system_identifier, p_wal_lsn, p_wal_at);
        restored := unknown > 0 OR v_behind;
    END IF;
    IF restored THEN
        PERFORM redrive.begin_epoch('witness', NULL, CASE
            WHEN unknown > 0 THEN format('A relay remembers %s attempts of the last %s that are not known here.', unknown,
                                         cardinality(p_ids))
            ELSE format('A relay saw the WAL at %s; it is at %s.', p_wal_lsn, wal_lsn) END, at);
    END IF;
    closed := CASE WHEN p_remembers THEN '{}' ELSE ARRAY(
        SELECT c.destination
          FROM relay r
          JOIN comparison c ON c.destination = ANY (r.destinations) AND c.began_at < r.started_at
          JOIN destination d ON d.name = c.destination AND d.money
         WHERE r.worker = p_worker
           AND NOT EXISTS (SELECT 1 FROM relay o WHERE o.worker <> p_worker AND o.witnessed_at > r.started_at)
         ORDER BY c.destination) END;
    UPDATE relay r SET witness = p_kept, witnessed_at = CASE WHEN restored OR closed <> '{}' THEN r.witnessed_at ELSE at END
     WHERE r.worker = p_worker;
END $body$;

-- unknown_attempts: how many of these this database has never seen begin. Messages of ranges that were retired are not counted. A claim of
-- the same number at another time is not the one that is remembered: it was made here after the restore, before anything was asked.
CREATE OR REPLACE FUNCTION redrive.unknown_attempts(p_ids uuid[], p_attempts integer[], p_at timestamptz[]) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_since timestamptz := coalesce((SELECT max(e.began_at) FROM epoch e WHERE e.destination IS NULL AND e.number > 1), '-infinity');
        v_end   uuid := redrive.id_floor((SELECT max(r.ends_at) FROM partition_range r));
BEGIN
    RETURN (SELECT count(*)
              FROM unnest(p_ids, p_attempts, p_at) AS w(id, attempt, at)
             WHERE w.at > v_since
               AND ((SELECT true FROM pending p WHERE p.id = w.id AND p.attempt >= w.attempt) IS NULL
                    AND (SELECT true FROM lease l WHERE l.id = w.id AND l.attempt >= w.attempt) IS NULL
                    AND (SELECT true FROM parked k WHERE k.id = w.id AND k.attempt >= w.attempt) IS NULL
                    AND (SELECT true FROM attempt a WHERE a.message_id = w.id AND a.attempt >= w.attempt LIMIT 1) IS NULL
                    OR (SELECT true FROM lease l WHERE l.id = w.id AND l.attempt = w.attempt AND l.claimed_at <> w.at)
                    OR (SELECT true FROM attempt a
                         WHERE a.message_id = w.id AND a.attempt = w.attempt AND a.claimed_at <> w.at LIMIT 1))
               AND NOT (w.id < v_end
                        AND NOT EXISTS (SELECT 1 FROM partition_range r
                                         WHERE w.id >= redrive.id_floor(r.starts_at) AND w.id < redrive.id_floor(r.ends_at))));
END $body$;

-- is_behind: whether the same server has flushed less WAL than it had, since the last epoch.
CREATE OR REPLACE FUNCTION redrive.is_behind(
    p_system_identifier bigint, p_wal_lsn text, p_seen_system_identifier bigint, p_seen_wal_lsn text, p_seen_at timestamptz
) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = redrive, pg_temp AS $body$
BEGIN
    RETURN coalesce(p_seen_system_identifier = p_system_identifier AND p_wal_lsn::pg_lsn < p_seen_wal_lsn::pg_lsn
                    AND p_seen_at > coalesce((SELECT max(e.began_at) FROM epoch e WHERE e.destination IS NULL AND e.number > 1),
                                             '-infinity'), false);
END $body$;
