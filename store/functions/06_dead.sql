-- What becomes of dead jobs: an operator replays them or gives them up. Everybody comes this way - the
-- command line, Python, SQL - so that two people who do it at once do it once, and the audit log has it.

-- dead -> queued, with new budgets; attempts are kept. Returns those that were dead until now: whoever
-- comes second waits for the first, and gets no row. `asked` is what was asked for, for the audit log.
-- Arguments can be changed on the way: `new_args` in the place of all, or `changes` and `removals` of
-- some; what they were is kept in the audit log, a line a job.
CREATE OR REPLACE FUNCTION replay_many(
    ids      bigint[],
    actor    text,
    reason   text DEFAULT NULL,
    asked    jsonb DEFAULT '{}',
    new_args jsonb DEFAULT NULL,
    changes  jsonb DEFAULT '{}',
    removals text[] DEFAULT '{}'
) RETURNS TABLE (job_id bigint)
    -- By index whatever the statistics say; a plain join is at times planned as a walk over all jobs.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    edits constant boolean := new_args IS NOT NULL OR changes <> '{}' OR removals <> '{}';
    -- What was let in with another limit may stay as large as it is.
    most  constant integer := coalesce(nullif(current_setting('jobctl.max_args_bytes', true), '')::integer, 65536);
    held  bigint[];
    wrong record;
BEGIN
    IF jsonb_typeof(coalesce(new_args, '{}')) <> 'object' OR jsonb_typeof(changes) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'arguments must be a JSON object' USING ERRCODE = 'invalid_parameter_value';
    END IF;

    -- The lock gives the transaction its id, which it must have before any nextval('ready_seq').
    held := ARRAY(
        SELECT d.job_id FROM dead AS d WHERE d.job_id = ANY(ids) ORDER BY d.job_id FOR UPDATE
    );
    IF held = '{}' THEN
        RETURN;
    END IF;

    IF edits THEN
        SELECT j.id, octet_length(n.args::text) AS size
        INTO wrong
        FROM unnest(held) AS h (id)
        CROSS JOIN LATERAL (SELECT * FROM job AS o WHERE o.id = h.id LIMIT 1) AS j
        CROSS JOIN LATERAL (SELECT (coalesce(new_args, j.args) - removals) || changes AS args) AS n
        WHERE octet_length(n.args::text) > greatest(most, octet_length(j.args::text))
        ORDER BY j.id
        LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'the arguments of #% would be % bytes, more than %: store them elsewhere and pass a reference; nothing was changed',
                wrong.id, wrong.size, most USING ERRCODE = 'invalid_parameter_value';
        END IF;
        INSERT INTO audit (actor, action, target, count, reason)
        SELECT replay_many.actor, 'edit', jsonb_build_object('job', j.id, 'args', j.args), 1, replay_many.reason
        FROM unnest(held) AS h (id)
        CROSS JOIN LATERAL (SELECT * FROM job AS o WHERE o.id = h.id LIMIT 1) AS j
        WHERE j.args <> (coalesce(new_args, j.args) - removals) || changes
        ORDER BY j.id;
        UPDATE job AS j
        SET args = (coalesce(new_args, j.args) - removals) || changes
        WHERE j.id = ANY(held);
    END IF;

    DELETE FROM dead AS d WHERE d.job_id = ANY(held);
    UPDATE job AS j
    SET attempt = 0,
        crashes = 0,
        run_at = clock_timestamp(),
        first_started_at = NULL,
        first_failed_at = NULL,
        cancel_requested_at = NULL,
        cancel_force_at = NULL,
        compensating = NULL
    WHERE j.id = ANY(held);
    INSERT INTO ready (queue, priority, job_id)
    SELECT j.queue, j.priority, j.id
    FROM unnest(held) AS h (id)
    CROSS JOIN LATERAL (SELECT * FROM job AS o WHERE o.id = h.id LIMIT 1) AS j
    WHERE j.limit_key IS NULL
    ORDER BY j.id;
    -- Promotion sees to it that its limit is kept.
    INSERT INTO scheduled (run_at, job_id)
    SELECT j.run_at, j.id
    FROM unnest(held) AS h (id)
    CROSS JOIN LATERAL (SELECT * FROM job AS o WHERE o.id = h.id LIMIT 1) AS j
    WHERE j.limit_key IS NOT NULL;
    INSERT INTO audit (actor, action, target, count, reason)
    VALUES (replay_many.actor, 'replay',
            jsonb_build_object('asked', asked, 'jobs', held)
            || CASE WHEN edits
                THEN jsonb_strip_nulls(jsonb_build_object('args', new_args, 'set', changes, 'unset', removals))
                ELSE '{}' END,
            cardinality(held), replay_many.reason);
    PERFORM ring();
    RETURN QUERY SELECT h.id FROM unnest(held) AS h (id);
END
$$;

-- dead -> discarded: nobody will run it. It moves to history with what it died of, and its key is free
-- at once. Needs a reason. Returns those that were dead until now.
CREATE OR REPLACE FUNCTION discard_many(ids bigint[], actor text, reason text, asked jsonb DEFAULT '{}')
    RETURNS TABLE (job_id bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    held bigint[];
BEGIN
    IF coalesce(btrim(reason), '') = '' THEN
        RAISE EXCEPTION 'a job is discarded for a reason: say it' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    held := ARRAY(
        SELECT d.job_id FROM dead AS d WHERE d.job_id = ANY(ids) ORDER BY d.job_id FOR UPDATE
    );
    IF held = '{}' THEN
        RETURN;
    END IF;
    -- The leader makes them days ahead; perhaps none has run lately.
    IF to_regclass('history_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NULL THEN
        PERFORM make_history_partitions();
    END IF;

    DELETE FROM dead AS d WHERE d.job_id = ANY(held);
    DELETE FROM job_key AS k
    WHERE k.ctid = ANY(ARRAY(
        SELECT k.at
        FROM unnest(held) AS h (id)
        CROSS JOIN LATERAL (SELECT * FROM job AS o WHERE o.id = h.id LIMIT 1) AS j
        CROSS JOIN LATERAL (
            SELECT o.ctid AS at
            FROM job_key AS o
            WHERE o.type = j.type AND o.key = j.key AND o.job_id = j.id
            LIMIT 1
        ) AS k
    ));
    WITH gone AS (
        DELETE FROM job AS j WHERE j.id = ANY(held) RETURNING j.*
    )
    INSERT INTO history (
        id, type, queue, priority, key, subject, args, schema_version, max_attempts, attempt, crashes,
        run_at, created_at, started_at, finished_at, state, cancel_requested_at, progress,
        failure_class, last_error_code, last_error, first_failed_at, last_failed_at)
    SELECT
        g.id, g.type, g.queue, g.priority, g.key, g.subject, g.args, g.schema_version, g.max_attempts,
        g.attempt, g.crashes, g.run_at, g.created_at, g.first_started_at, now(), 'discarded',
        g.cancel_requested_at, g.progress, g.failure_class, g.last_error_code, g.last_error,
        g.first_failed_at, g.last_failed_at
    FROM gone AS g;
    -- What was to be cancelled with them is; what was to wait for somebody to mend it waits, and the view
    -- says that nothing can let it go any more.
    PERFORM cancel_children(held);
    INSERT INTO audit (actor, action, target, count, reason)
    VALUES (discard_many.actor, 'discard', jsonb_build_object('asked', asked, 'jobs', held),
            cardinality(held), discard_many.reason);
    RETURN QUERY SELECT h.id FROM unnest(held) AS h (id);
END
$$;
