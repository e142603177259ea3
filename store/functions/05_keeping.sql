-- Keeping house.

-- History is kept in one partition a day (UTC). Made as a table of its own and then attached:
-- attaching does not stop those who read and write.
CREATE OR REPLACE FUNCTION make_history_partitions(days_ahead integer DEFAULT 7) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
    day   date;
    made  integer := 0;
    name  text;
BEGIN
    -- Each is a lock that is held till the end, and the server has only so many for everybody.
    IF days_ahead IS NULL OR days_ahead > 400 THEN
        RAISE 'partitions are made for at most 400 days ahead, not for %', days_ahead
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('jobctl history ' || current_schema(), 0));
    FOR offset_ IN -1 .. days_ahead LOOP
        day := (now() AT TIME ZONE 'UTC')::date + offset_;
        name := 'history_' || to_char(day, 'YYYYMMDD');
        IF to_regclass(quote_ident(name)) IS NULL THEN
            EXECUTE format('CREATE TABLE %I (LIKE history INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
            EXECUTE format('ALTER TABLE history ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                           name, day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
            made := made + 1;
        END IF;
    END LOOP;
    RETURN made;
END
$$;

-- Drops a partition of history: the owner's right, lent to whoever keeps house. Waits for a lock as long
-- as the caller's lock_timeout says. False: there is no such partition.
CREATE OR REPLACE FUNCTION drop_history_partition(name text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM
    FROM pg_inherits AS i
    JOIN pg_class AS c ON c.oid = i.inhrelid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE i.inhparent = 'history'::regclass AND n.nspname = current_schema()
        AND c.relname = name AND c.relname ~ '^history_[0-9]{8}$'
        -- What is kept at least, whatever the caller thinks: nobody empties history by this door.
        AND to_date(right(c.relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Two leaders, for a moment: the other may have been quicker.
    EXECUTE format('DROP TABLE IF EXISTS %I', name);
    RETURN true;
END
$$;

-- Jobs that are not in exactly one place, and placements of jobs that do not exist. Nothing, always.
CREATE OR REPLACE FUNCTION placement_violations() RETURNS TABLE (job_id bigint, problem text)
    LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    WITH placed AS (
        SELECT job_id, 'ready' AS place FROM ready
        UNION ALL SELECT job_id, 'scheduled' FROM scheduled
        UNION ALL SELECT job_id, 'claim' FROM claim
        UNION ALL SELECT job_id, 'blocked' FROM blocked
        UNION ALL SELECT job_id, 'dead' FROM dead
    ),
    counted AS (
        SELECT p.job_id, string_agg(p.place, ' and ' ORDER BY p.place) AS places, count(*) AS n
        FROM placed AS p
        GROUP BY p.job_id
    )
    SELECT j.id, 'is open and nowhere' FROM job AS j
    WHERE NOT EXISTS (SELECT FROM counted AS c WHERE c.job_id = j.id)
    UNION ALL
    SELECT c.job_id, 'stands in ' || c.places FROM counted AS c WHERE c.n > 1
    UNION ALL
    SELECT c.job_id, 'stands in ' || c.places || ' and does not exist' FROM counted AS c
    WHERE NOT EXISTS (SELECT FROM job AS j WHERE j.id = c.job_id)
    UNION ALL
    SELECT j.id, 'is open and in history' FROM job AS j
    WHERE EXISTS (SELECT FROM history AS h WHERE h.id = j.id)
    UNION ALL
    SELECT c.job_id, 'may run and has no place of limit ' || j.limit_key
    FROM (SELECT job_id FROM ready UNION ALL SELECT job_id FROM claim) AS c
    -- What makes good a cancelled job does not wait for a limit.
    JOIN job AS j ON j.id = c.job_id AND j.limit_key IS NOT NULL AND j.compensating IS NOT TRUE
    WHERE NOT EXISTS (SELECT FROM place AS p WHERE p.job_id = c.job_id)
    UNION ALL
    SELECT p.job_id, 'holds a place of limit ' || p.limit_key || ' and is not about to run'
    FROM place AS p
    WHERE NOT EXISTS (SELECT FROM ready AS r WHERE r.job_id = p.job_id)
        AND NOT EXISTS (SELECT FROM claim AS c WHERE c.job_id = p.job_id)
        AND NOT EXISTS (SELECT FROM scheduled AS s WHERE s.job_id = p.job_id)
    UNION ALL
    SELECT b.job_id, 'waits for ' || b.waits_for || ' jobs and comes after ' || e.unmet || ' that have not succeeded'
    FROM blocked AS b
    CROSS JOIN LATERAL (
        SELECT count(*) AS unmet FROM job_edge AS e WHERE e.child = b.job_id AND e.met_at IS NULL
    ) AS e
    WHERE b.reason = 'parents' AND (b.waits_for <> e.unmet OR b.waits_for = 0);
END;
