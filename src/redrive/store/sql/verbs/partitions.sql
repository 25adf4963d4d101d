-- make_partitions: ranges of message, body and attempt, made ahead of time so that the default partitions stay empty. Returns how many.
-- Rows that lie in a default partition and belong into a new range (no relay ran for weeks, or the clock was ahead) are moved into it, at
-- most p_move_max of the three tables together; after a range into which rows were moved the call ends, so that no lock is held for long:
-- call it again until it returns 0. It ends after 60 ranges too: a clock that was set forward by decades makes no thousands. A range with
-- more rows than that is made narrower, by halves; the one after it ends where ranges of the usual width do. More rows than that of one
-- millisecond are left, with SQLSTATE RDP01: the messages are delivered from where they are.
-- Locks: the defaults, so briefly that claims and producers wait 50 ms for it at most: a reader of them, such as a dump, makes it fail
-- with 55P03 (lock_not_available), and it is to be called again. CREATE ... LIKE and then ATTACH, because creating a partition in place
-- would lock the whole table.
CREATE OR REPLACE FUNCTION redrive.make_partitions_1(
    p_width_seconds float8, p_ahead integer, p_now timestamptz DEFAULT NULL, p_move_max integer DEFAULT 20000
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET lock_timeout = '2s' AS $body$
DECLARE v_now   timestamptz := coalesce(p_now, clock_timestamp());
        v_start timestamptz;
        v_end   timestamptz;
        v_rows  integer;
        v_made  integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('redrive.partition_range', 0));
    v_start := coalesce((SELECT max(r.ends_at) FROM partition_range r),
                        to_timestamp(floor(extract(epoch FROM v_now) / p_width_seconds) * p_width_seconds));
    WHILE v_start <= v_now + make_interval(secs => p_ahead * p_width_seconds) LOOP
        v_end := to_timestamp((floor(extract(epoch FROM v_start) / p_width_seconds) + 1) * p_width_seconds);
        LOOP
            v_rows := redrive.rows_by_default(redrive.id_floor(v_start), redrive.id_floor(v_end), p_move_max);
            EXIT WHEN v_rows <= p_move_max OR v_end - v_start <= interval '1 millisecond';
            v_end := v_start + make_interval(secs => ceil(500 * extract(epoch FROM v_end - v_start)) / 1000);
        END LOOP;
        EXIT WHEN v_rows > 0 AND v_made > 0;
        IF v_rows > p_move_max THEN
            RAISE EXCEPTION 'The default partitions hold more than % rows of the range from % to %.', p_move_max, v_start, v_end
                  USING ERRCODE = 'RDP01';
        END IF;
        PERFORM redrive.make_partition(v_start, v_end);
        v_start := v_end;
        v_made := v_made + 1;
        EXIT WHEN v_rows > 0 OR v_made = 60;
    END LOOP;
    RETURN v_made;
END $body$;

-- rows_by_default: how many rows of a range of ids lie in the default partitions; counted up to one more than p_most.
CREATE OR REPLACE FUNCTION redrive.rows_by_default(p_low uuid, p_high uuid, p_most integer) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
BEGIN
    RETURN (SELECT count(*) FROM (
        SELECT 1 FROM (SELECT 1 FROM message_default m WHERE m.id >= p_low AND m.id < p_high LIMIT p_most + 1) m
        UNION ALL
        SELECT 1 FROM (SELECT 1 FROM body_default b WHERE b.message_id >= p_low AND b.message_id < p_high LIMIT p_most + 1) b
        UNION ALL
        SELECT 1 FROM (SELECT 1 FROM attempt_default a WHERE a.message_id >= p_low AND a.message_id < p_high LIMIT p_most + 1) a
        LIMIT p_most + 1) x);
END $body$;

-- rows_in_default: how many rows lie in the default partitions, where there was no partition for them; counted up to p_most.
CREATE OR REPLACE FUNCTION redrive.rows_in_default_1(p_most integer) RETURNS integer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
BEGIN
    RETURN (SELECT count(*) FROM (SELECT 1 FROM message_default UNION ALL SELECT 1 FROM body_default
                                  UNION ALL SELECT 1 FROM attempt_default LIMIT p_most) x);
END $body$;

-- Made whole before anything is locked; then the tables, then the defaults, in the order in which everything else locks them.
CREATE OR REPLACE FUNCTION redrive.make_partition(p_starts_at timestamptz, p_ends_at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = redrive, pg_temp SET lock_timeout = '50ms' AS $body$
DECLARE v_suffix text := to_char(p_starts_at AT TIME ZONE 'UTC', CASE WHEN date_trunc('second', p_starts_at) = p_starts_at
                                                                         THEN 'YYYYMMDD"t"HH24MISS' ELSE 'YYYYMMDD"t"HH24MISS"_"MS' END);
        v_low    uuid := redrive.id_floor(p_starts_at);
        v_high   uuid := redrive.id_floor(p_ends_at);
        v_table  text;
BEGIN
    FOREACH v_table IN ARRAY ARRAY['message', 'body', 'attempt'] LOOP
        EXECUTE format('CREATE TABLE redrive.%I (LIKE redrive.%I INCLUDING ALL)', v_table || '_' || v_suffix, v_table);
        -- A row trigger comes with ATTACH, one for TRUNCATE does not.
        EXECUTE format('CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON redrive.%I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION redrive.refuse_change()', v_table || '_' || v_suffix);
    END LOOP;
    LOCK TABLE ONLY message, ONLY body, ONLY attempt IN SHARE UPDATE EXCLUSIVE MODE;
    LOCK TABLE message_default, body_default, attempt_default IN ACCESS EXCLUSIVE MODE;
    IF redrive.rows_by_default(v_low, v_high, 0) > 0 THEN
        PERFORM redrive.move_from_default('message', 'id', v_suffix, v_low, v_high);
        PERFORM redrive.move_from_default('body', 'message_id', v_suffix, v_low, v_high);
        PERFORM redrive.move_from_default('attempt', 'message_id', v_suffix, v_low, v_high);
    END IF;
    FOREACH v_table IN ARRAY ARRAY['message', 'body', 'attempt'] LOOP
        EXECUTE format('ALTER TABLE redrive.%I ATTACH PARTITION redrive.%I FOR VALUES FROM (%L) TO (%L)', v_table,
                       v_table || '_' || v_suffix, v_low, v_high);
    END LOOP;
    INSERT INTO partition_range (starts_at, ends_at, suffix) VALUES (p_starts_at, p_ends_at, v_suffix);
END $body$;

-- move_from_default: rows of a range, from a default partition into a table that is about to become their partition. The default refuses
-- DELETE (append_only); it is held exclusively, and nothing but this may delete from it meanwhile.
CREATE OR REPLACE FUNCTION redrive.move_from_default(p_table text, p_id text, p_suffix text, p_low uuid, p_high uuid) RETURNS void
LANGUAGE plpgsql SET search_path = redrive, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $body$
DECLARE v_columns text := (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
                            WHERE a.attrelid = format('redrive.%I', p_table)::regclass AND a.attnum > 0 AND NOT a.attisdropped);
BEGIN
    EXECUTE format('ALTER TABLE redrive.%I DISABLE TRIGGER append_only', p_table || '_default');
    EXECUTE format('WITH moved AS (DELETE FROM redrive.%I WHERE %I >= %L AND %I < %L RETURNING *) INSERT INTO redrive.%I (%s) '
                   'SELECT %s FROM moved', p_table || '_default', p_id, p_low, p_id, p_high, p_table || '_' || p_suffix, v_columns,
                   v_columns);
    EXECUTE format('ALTER TABLE redrive.%I ENABLE TRIGGER append_only', p_table || '_default');
END $body$;

-- retire: drop one range of message, body and attempt, if nothing in it is open.
-- Lock first, look in a new statement, then drop: a message that commits in between is seen. Answers 'retired', 'open'
-- (something in it is pending, leased or parked), 'young' (it has not ended, a transaction is older than its end, or the
-- clock was set forward within a day, so that a range may seem older than it is) or
-- 'none' (there is no such range). The idempotency registry is exempt.
-- p_lock_ms: how long claims and producers may wait for it, beside a long reader for instance; then it fails with 55P03, and is to be
-- called again.
CREATE OR REPLACE FUNCTION redrive.retire_1(p_starts_at timestamptz, p_now timestamptz DEFAULT NULL, p_lock_ms integer DEFAULT 50)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET lock_timeout = '1s' AS $body$
DECLARE v_range  partition_range;
        v_low    uuid;
        v_high   uuid;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('redrive.partition_range', 0));
    SELECT * INTO v_range FROM partition_range r WHERE r.starts_at = p_starts_at;
    IF NOT FOUND THEN
        RETURN 'none';
    ELSIF least(redrive.oldest_transaction(), coalesce(p_now, clock_timestamp())) <= v_range.ends_at
          OR EXISTS (SELECT 1 FROM clock_jump j
                      WHERE j.offset_seconds > 0 AND j.noticed_at > coalesce(p_now, clock_timestamp()) - interval '1 day') THEN
        RETURN 'young';
    END IF;
    v_low := redrive.id_floor(v_range.starts_at);
    v_high := redrive.id_floor(v_range.ends_at);
    PERFORM set_config('lock_timeout', p_lock_ms || 'ms', true);
    LOCK TABLE message, body, attempt IN ACCESS EXCLUSIVE MODE;
    IF EXISTS (SELECT 1 FROM pending p WHERE p.id >= v_low AND p.id < v_high)
       OR EXISTS (SELECT 1 FROM lease l WHERE l.id >= v_low AND l.id < v_high)
       OR EXISTS (SELECT 1 FROM parked k WHERE k.id >= v_low AND k.id < v_high) THEN
        RETURN 'open';
    END IF;
    EXECUTE format('DROP TABLE redrive.%I, redrive.%I, redrive.%I', 'message_' || v_range.suffix,
                   'body_' || v_range.suffix, 'attempt_' || v_range.suffix);
    DELETE FROM partition_range r WHERE r.starts_at = p_starts_at;
    RETURN 'retired';
END $body$;

-- When the oldest transaction of this database (but ours) began; what it has written is not to be seen yet.
CREATE OR REPLACE FUNCTION redrive.oldest_transaction() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $body$
    SELECT least(min(a.xact_start), (SELECT min(x.prepared) FROM pg_prepared_xacts x WHERE x.database = current_database()))
      FROM pg_stat_activity a WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
$body$;

-- ranges: the partition ranges there are, oldest first.
CREATE OR REPLACE FUNCTION redrive.ranges_1() RETURNS SETOF redrive.partition_range
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp AS $body$
BEGIN
    RETURN QUERY SELECT * FROM partition_range r ORDER BY r.starts_at;
END $body$;

-- The first ranges: this week and four weeks ahead. The `partitions` duty goes on from here.
DO $first$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM redrive.partition_range) THEN
        PERFORM redrive.make_partitions_1(7 * 86400, 4);
    END IF;
END
$first$;
