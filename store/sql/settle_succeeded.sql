-- settle_succeeded: running -> succeeded, a batch.
-- Guard: (job, session, token) of the claim; a claim or a job that somebody has locked is skipped
--   and not returned: ask `settle_missing` about it. Whatever is returned is in history, once.
-- Index: the primary keys of claim and job. `= ANY` and not a join with unnest: it stays flat when
--   another session holds an old snapshot.
-- Parameters: jobs, tokens (arrays, tokens are unique within a session), session,
--   with_result, results (arrays of the same length: tokens of claims that have one, and JSON
--   texts. Each is parsed by itself: one job's text cannot pass for another's).
WITH mine AS MATERIALIZED (
    SELECT c.job_id
    FROM claim AS c
    -- The job too: an open transaction that has touched it must not hold up its neighbours.
    JOIN job AS j ON j.id = c.job_id
    WHERE c.job_id = ANY(%(jobs)s::bigint[])
        AND c.token = ANY(%(tokens)s::bigint[])
        AND c.session_id = %(session)s
    ORDER BY c.job_id
    FOR UPDATE SKIP LOCKED
),
freed AS (
    DELETE FROM claim AS c
    USING mine AS m
    WHERE c.job_id = m.job_id
    RETURNING c.job_id, c.token, coalesce(c.started_at, c.claimed_at) AS started_at
),
gone AS (
    DELETE FROM job AS j
    USING freed AS f
    WHERE j.id = f.job_id
    RETURNING j.*, f.token, f.started_at
),
keys AS (
    UPDATE job_key AS k
    SET until = now() + make_interval(secs => k.ttl_seconds)
    FROM gone AS g
    WHERE g.key IS NOT NULL AND k.type = g.type AND k.key = g.key AND k.job_id = g.id
),
kept AS (
    INSERT INTO history (
        id, type, queue, priority, key, subject, args, schema_version, max_attempts, attempt,
        crashes, run_at, created_at, started_at, finished_at, state, cancel_requested_at, progress,
        result, failure_class, last_error_code, last_error, first_failed_at, last_failed_at,
        session_id, token)
    SELECT
        g.id, g.type, g.queue, g.priority, g.key, g.subject, g.args, g.schema_version,
        g.max_attempts, g.attempt + 1, g.crashes, g.run_at, g.created_at, g.started_at, now(),
        'succeeded', g.cancel_requested_at, g.progress,
        (%(results)s::text[])[array_position(%(with_result)s::bigint[], g.token)]::jsonb,
        g.failure_class, g.last_error_code, g.last_error, g.first_failed_at, g.last_failed_at,
        %(session)s, g.token
    FROM gone AS g
)
SELECT g.id, g.token FROM gone AS g;
