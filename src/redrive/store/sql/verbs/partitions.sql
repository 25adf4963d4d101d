-- make_partitions: ranges of message, body and attempt, made ahead of time so that the default partitions stay empty.
-- CREATE ... LIKE and then ATTACH, because creating a partition in place would lock the whole table.
CREATE OR REPLACE FUNCTION redrive.make_partitions_1(
    p_width_seconds float8, p_ahead integer, p_now timestamptz DEFAULT NULL
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET lock_timeout = '2s'
AS $body$
DECLARE
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_start timestamptz;
    v_made  integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('redrive.partition_range', 0));
    v_start := coalesce((SELECT max(r.ends_at) FROM partition_range r),
                        to_timestamp(floor(extract(epoch FROM v_now) / p_width_seconds) * p_width_seconds));
    WHILE v_start <= v_now + make_interval(secs => p_ahead * p_width_seconds) LOOP
        PERFORM redrive.make_partition(v_start, v_start + make_interval(secs => p_width_seconds));
        v_start := v_start + make_interval(secs => p_width_seconds);
        v_made := v_made + 1;
    END LOOP;
    RETURN v_made;
END
$body$;

CREATE OR REPLACE FUNCTION redrive.make_partition(p_starts_at timestamptz, p_ends_at timestamptz)
RETURNS void LANGUAGE plpgsql SET search_path = redrive, pg_temp
AS $body$
DECLARE
    v_suffix text := to_char(p_starts_at AT TIME ZONE 'UTC', 'YYYYMMDD"t"HH24MISS');
    v_table  text;
BEGIN
    FOREACH v_table IN ARRAY ARRAY['message', 'body', 'attempt'] LOOP
        EXECUTE format('CREATE TABLE redrive.%I (LIKE redrive.%I INCLUDING ALL)', v_table || '_' || v_suffix, v_table);
        EXECUTE format('ALTER TABLE redrive.%I ATTACH PARTITION redrive.%I FOR VALUES FROM (%L) TO (%L)', v_table,
                       v_table || '_' || v_suffix, redrive.id_floor(p_starts_at), redrive.id_floor(p_ends_at));
        -- A row trigger comes with ATTACH, one for TRUNCATE does not.
        EXECUTE format('CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON redrive.%I '
                       'FOR EACH STATEMENT EXECUTE FUNCTION redrive.refuse_change()', v_table || '_' || v_suffix);
    END LOOP;
    INSERT INTO partition_range (starts_at, ends_at, suffix) VALUES (p_starts_at, p_ends_at, v_suffix);
END
$body$;

-- retire: drop one range of message, body and attempt, if nothing in it is open (ruling 17).
-- Lock first, look in a new statement, then drop: a message that commits in between is seen. Answers 'retired', 'open'
-- (something in it is pending, leased or parked), 'young' (it has not ended, a transaction is older than its end, or the
-- clock was set forward within a day, so that a range may seem older than it is) or
-- 'none' (there is no such range). The idempotency registry is exempt.
CREATE OR REPLACE FUNCTION redrive.retire_1(p_starts_at timestamptz, p_now timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = redrive, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_range  partition_range;
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
END
$body$;

-- When the oldest transaction of this database (but ours) began; what it has written is not to be seen yet.
CREATE OR REPLACE FUNCTION redrive.oldest_transaction() RETURNS timestamptz LANGUAGE sql VOLATILE
AS $body$
    SELECT least(min(a.xact_start), (SELECT min(x.prepared) FROM pg_prepared_xacts x WHERE x.database = current_database()))
      FROM pg_stat_activity a WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
$body$;

-- ranges: the partition ranges there are, oldest first.
CREATE OR REPLACE FUNCTION redrive.ranges_1() RETURNS SETOF redrive.partition_range
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = redrive, pg_temp
AS $body$
BEGIN
    RETURN QUERY SELECT * FROM partition_range r ORDER BY r.starts_at;
END
$body$;

-- The first ranges: this week and four weeks ahead. The `partitions` duty goes on from here.
DO $first$
BEGIN
    PERFORM redrive.make_partitions_1(7 * 86400, 4);
END
$first$;
