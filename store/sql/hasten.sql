-- hasten: scheduled | retrying -> queued, before its time.
-- Guard: it still stands in `scheduled`; what is being promoted this moment gets no row.
-- Index: scheduled_job.
-- Parameters: ids, actor, reason (or NULL), filter (JSON: what was asked for).
-- The transaction has its id (the lock on `scheduled`) before nextval is called for `ready`.
WITH held AS MATERIALIZED (
    SELECT s.run_at, s.job_id
    FROM scheduled AS s
    WHERE s.job_id = ANY(%(ids)s::bigint[])
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
    RETURNING job_id
),
-- Promotion sees to it that its limit is kept.
due_within_limits AS (
    INSERT INTO scheduled (run_at, job_id)
    SELECT d.run_at, d.id FROM due AS d WHERE d.limit_key IS NOT NULL
    RETURNING job_id
),
queued AS (
    SELECT job_id FROM due_now UNION ALL SELECT job_id FROM due_within_limits
),
noted AS (
    INSERT INTO audit (actor, action, target, count, reason)
    SELECT %(actor)s, 'retry', jsonb_build_object('asked', %(filter)s::jsonb, 'jobs', jsonb_agg(q.job_id)),
           count(*), %(reason)s
    FROM queued AS q
    HAVING count(*) > 0
)
SELECT job_id FROM queued;
