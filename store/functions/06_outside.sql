-- What others than its handler may ask of a job, in their own transaction: cancel, get, replay, wait.

-- One job, from wherever it stands. The place is locked first and the job after it, as everybody does
-- who moves a job, so nobody deadlocks; whoever moves it this moment is waited for, and then it is
-- looked for anew. `changed`: whether this call has done something. A NULL answer: there is no such job.
CREATE OR REPLACE FUNCTION cancel_one(
    job bigint, moment timestamptz, force_at timestamptz, OUT answer text, OUT changed boolean
)
    LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    holder bigint;
    it     record;
BEGIN
    changed := false;
    FOR turn IN 1 .. 1000 LOOP
        -- Its hook waits for a slot: there is nothing to take back, and nothing else to run.
        PERFORM FROM job AS j WHERE j.id = job AND j.compensating
            AND NOT EXISTS (SELECT FROM claim AS c WHERE c.job_id = job);
        IF FOUND THEN
            answer := 'cancel_requested';
            RETURN;
        END IF;

        DELETE FROM ready AS r WHERE r.job_id = job;
        IF NOT FOUND THEN
            DELETE FROM scheduled AS s WHERE s.job_id = job;
        END IF;
        IF NOT FOUND THEN
            DELETE FROM blocked AS b WHERE b.job_id = job;
        END IF;
        IF FOUND THEN
            SELECT j.*, t.on_cancel INTO it
            FROM job AS j
            LEFT JOIN LATERAL (SELECT o.on_cancel FROM job_type AS o WHERE o.name = j.type LIMIT 1) AS t ON true
            WHERE j.id = job
            FOR UPDATE OF j;
            changed := it.compensating IS NOT TRUE;
            IF it.compensating OR (it.on_cancel AND (
                it.attempt > 0 OR it.first_started_at IS NOT NULL
                OR EXISTS (SELECT FROM attempt AS a WHERE a.job_id = job)))
            THEN
                UPDATE job AS j
                SET cancel_requested_at = coalesce(j.cancel_requested_at, moment),
                    cancel_force_at = NULL,
                    compensating = true
                WHERE j.id = job;
                INSERT INTO ready (queue, priority, lane, job_id) VALUES (it.queue, it.priority, 'front', job);
                PERFORM ring();
                answer := 'cancel_requested';
            ELSE
                IF it.limit_key IS NOT NULL THEN
                    PERFORM leave_places(ARRAY[job]);
                END IF;
                PERFORM end_cancelled(job, moment);
                answer := 'cancelled';
            END IF;
            RETURN;
        END IF;

        -- Not FOR UPDATE: that would hold up whoever notes where it runs.
        SELECT c.session_id INTO holder FROM claim AS c WHERE c.job_id = job FOR KEY SHARE;
        IF FOUND THEN
            UPDATE job AS j
            SET cancel_requested_at = coalesce(j.cancel_requested_at, moment),
                cancel_force_at = least(j.cancel_force_at, force_at)    -- NULL: the other one
            WHERE j.id = job
                AND (j.cancel_requested_at IS NULL OR force_at < coalesce(j.cancel_force_at, 'infinity'));
            changed := FOUND;
            IF changed THEN
                PERFORM pg_notify(channel(), 'cancel ' || holder);
            END IF;
            answer := 'cancel_requested';
            RETURN;
        END IF;

        PERFORM FROM dead AS d WHERE d.job_id = job;
        IF FOUND THEN
            answer := 'already_dead';
            RETURN;
        END IF;
        PERFORM FROM job AS j WHERE j.id = job;
        IF NOT FOUND THEN
            SELECT CASE h.state
                WHEN 'succeeded' THEN 'already_succeeded' WHEN 'discarded' THEN 'already_dead' ELSE h.state
            END
            INTO answer
            FROM history AS h
            WHERE h.id = job
            ORDER BY h.finished_at DESC
            LIMIT 1;
            RETURN;
        END IF;
        -- It has moved on between two of these statements.
    END LOOP;
    RAISE EXCEPTION 'job % moves from place to place and could not be caught; try again', job
        USING ERRCODE = 'serialization_failure';
END
$$;

-- A job that stands nowhere any more, into history. Its key is free after its ttl.
CREATE OR REPLACE FUNCTION end_cancelled(job bigint, moment timestamptz) RETURNS void
    LANGUAGE sql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
BEGIN ATOMIC
    UPDATE job_key AS k
    SET until = moment + make_interval(secs => k.ttl_seconds)
    FROM job AS j
    WHERE j.id = end_cancelled.job AND j.key IS NOT NULL
        AND k.type = j.type AND k.key = j.key AND k.job_id = j.id;
    WITH gone AS (
        DELETE FROM job AS j WHERE j.id = end_cancelled.job RETURNING j.*
    )
    INSERT INTO history (
        id, type, queue, priority, key, subject, args, schema_version, max_attempts, attempt, crashes,
        run_at, created_at, started_at, finished_at, state, cancel_requested_at, progress,
        failure_class, last_error_code, last_error, first_failed_at, last_failed_at)
    SELECT
        g.id, g.type, g.queue, g.priority, g.key, g.subject, g.args, g.schema_version, g.max_attempts,
        g.attempt, g.crashes, g.run_at, g.created_at, g.first_started_at, moment, 'cancelled',
        coalesce(g.cancel_requested_at, moment), g.progress, g.failure_class, g.last_error_code,
        g.last_error, g.first_failed_at, g.last_failed_at
    FROM gone AS g;
END;

-- Any number, each answered for: cancelled, cancel_requested, already_succeeded, already_dead. No row
-- for what does not exist. `force_after` NULL: whoever runs is asked, and nothing more. In the order of
-- the ids, so that two who cancel the same jobs wait for each other and do not deadlock.
CREATE OR REPLACE FUNCTION cancel_many(
    ids         bigint[],
    actor       text DEFAULT NULL,
    reason      text DEFAULT NULL,
    force_after interval DEFAULT NULL,
    asked       jsonb DEFAULT NULL
) RETURNS TABLE (job_id bigint, answer text, changed boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    moment constant timestamptz := clock_timestamp();
    job    bigint;
    it     record;
    done   bigint[] := '{}';
    over   bigint[] := '{}';
BEGIN
    IF force_after < interval '0' OR force_after > interval '1000 years' THEN
        RAISE EXCEPTION 'force_after must be 0 or more, not %', force_after
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF to_regclass('history_' || to_char(moment AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL THEN
        PERFORM make_history_partitions();      -- nobody has led for days
    END IF;
    FOR job IN SELECT DISTINCT i.id FROM unnest(ids) AS i (id) WHERE i.id IS NOT NULL ORDER BY i.id LOOP
        SELECT * INTO it FROM cancel_one(job, moment, moment + force_after);
        CONTINUE WHEN it.answer IS NULL;
        IF it.changed THEN
            done := done || job;
        END IF;
        IF it.changed AND it.answer = 'cancelled' THEN
            over := over || job;
        END IF;
        RETURN QUERY SELECT job, it.answer, it.changed;
    END LOOP;
    IF over <> '{}' THEN
        PERFORM cancel_children(over);  -- what was to be cancelled with them
    END IF;
    IF cardinality(done) > 0 THEN
        INSERT INTO audit (actor, action, target, count, reason)
        VALUES (
            coalesce(actor, session_user), 'cancel',
            jsonb_strip_nulls(jsonb_build_object(
                'asked', asked, 'jobs', to_jsonb(done),
                'force_after_seconds', extract(epoch FROM force_after))),
            cardinality(done), reason);
    END IF;
END
$$;

-- SELECT jobctl.cancel(1842, reason => 'ordered twice')
CREATE OR REPLACE FUNCTION cancel(
    id          bigint,
    actor       text DEFAULT NULL,
    reason      text DEFAULT NULL,
    force_after interval DEFAULT NULL
) RETURNS text
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    said text := (SELECT c.answer FROM cancel_many(ARRAY[id], actor, reason, force_after) AS c);
BEGIN
    IF said IS NULL THEN
        RAISE EXCEPTION 'there is no job %', id
            USING ERRCODE = 'no_data_found', HINT = 'Finished jobs are forgotten after history_keep.';
    END IF;
    RETURN said;
END
$$;

-- SELECT state, progress FROM jobctl.get(1842): as the view has it, or no row. Not one statement of SQL
-- with its columns spelt out: the view gets new ones. Whoever knows an id may ask what became of the job,
-- but its arguments are for those who may read the table. The login counts: whose rights the function has
-- says nothing about who calls it.
CREATE OR REPLACE FUNCTION get(id bigint) RETURNS SETOF jobs
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
    SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    it jobs;
BEGIN
    FOR it IN SELECT * FROM jobs AS j WHERE j.id = get.id LOOP
        IF NOT has_table_privilege(session_user, 'job'::regclass, 'SELECT') THEN
            it.args := NULL;
        END IF;
        RETURN NEXT it;
    END LOOP;
END
$$;

-- Queues a dead job again, with new budgets; its attempts are kept. False: it is not dead, or not any
-- more.
CREATE OR REPLACE FUNCTION replay(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM FROM replay_many(ARRAY[replay.id], coalesce(replay.actor, session_user), replay.reason);
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM get(replay.id);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no job %', id
            USING ERRCODE = 'no_data_found', HINT = 'Finished jobs are forgotten after history_keep.';
    END IF;
    RETURN false;
END
$$;

-- scheduled | retrying -> queued, before its time. Returns those that were waiting until now; what is
-- being promoted this moment is not among them. `asked` is what was asked for, for the audit log.
CREATE OR REPLACE FUNCTION hasten_many(
    ids bigint[], actor text, reason text DEFAULT NULL, asked jsonb DEFAULT '{}'
) RETURNS TABLE (job_id bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    -- The transaction has its id (the lock on `scheduled`) before nextval is called for `ready`.
    WITH held AS MATERIALIZED (
        SELECT s.run_at, s.job_id
        FROM scheduled AS s
        WHERE s.job_id = ANY(ids)
        ORDER BY s.job_id
        FOR UPDATE
    ),
    gone AS (
        DELETE FROM scheduled AS s
        USING held AS h
        WHERE s.run_at = h.run_at AND s.job_id = h.job_id
        RETURNING s.job_id
    ),
    due AS (
        UPDATE job AS j
        SET run_at = clock_timestamp()
        FROM gone AS g
        WHERE j.id = g.job_id
        RETURNING j.id, j.queue, j.priority, j.limit_key, j.run_at
    ),
    due_now AS (
        INSERT INTO ready (queue, priority, job_id)
        SELECT d.queue, d.priority, d.id FROM due AS d WHERE d.limit_key IS NULL ORDER BY d.id
        RETURNING ready.job_id
    ),
    -- Promotion sees to it that its limit is kept.
    due_within_limits AS (
        INSERT INTO scheduled (run_at, job_id)
        SELECT d.run_at, d.id FROM due AS d WHERE d.limit_key IS NOT NULL
        RETURNING scheduled.job_id
    ),
    queued AS (
        SELECT n.job_id FROM due_now AS n UNION ALL SELECT l.job_id FROM due_within_limits AS l
    ),
    noted AS (
        INSERT INTO audit (actor, action, target, count, reason)
        SELECT hasten_many.actor, 'retry', jsonb_build_object('asked', asked, 'jobs', jsonb_agg(q.job_id)),
               count(*), hasten_many.reason
        FROM queued AS q
        HAVING count(*) > 0
    )
    SELECT q.job_id FROM queued AS q;
END
$$;

-- Waits until a job has ended, or is dead, and returns its state; NULL once `timeout` is over. Every
-- look sees what is committed by then, so not in REPEATABLE READ, and never for a job that this very
-- transaction enqueues. It holds a snapshot, and with it back what VACUUM could remove: keep it short.
CREATE OR REPLACE FUNCTION wait(id bigint, timeout interval DEFAULT '10 seconds') RETURNS text
    LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    until constant timestamptz := clock_timestamp() + timeout;
    look  double precision := 0.02;
    said  text;
BEGIN
    IF timeout < interval '0' OR timeout > interval '10 minutes' THEN
        RAISE EXCEPTION 'timeout must be 0 to 10 minutes, not %', timeout
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        said := (SELECT g.state FROM get(wait.id) AS g);
        IF said IS NULL THEN
            RAISE EXCEPTION 'there is no job %', id
                USING ERRCODE = 'no_data_found', HINT = 'Finished jobs are forgotten after history_keep.';
        END IF;
        IF said IN ('succeeded', 'cancelled', 'discarded', 'dead') THEN
            RETURN said;
        END IF;
        IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
            RAISE EXCEPTION 'this transaction sees the database as it was when it began, and would never see job % end', id
                USING ERRCODE = 'active_sql_transaction', HINT = 'Wait outside of it, or in READ COMMITTED.';
        END IF;
        IF clock_timestamp() >= until THEN
            RETURN NULL;
        END IF;
        PERFORM pg_sleep(least(look * (0.8 + 0.4 * random()),
                               greatest(extract(epoch FROM until - clock_timestamp())::double precision, 0)));
        look := least(look * 1.5, 0.5);
    END LOOP;
END
$$;
