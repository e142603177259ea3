-- replay_dead: dead -> queued, with its budgets new. Its attempts are kept.
-- Guard: it still stands in `dead`. Whoever comes second waits for the first, finds nothing, and
--   gets no row.
-- Index: dead's primary key.
-- Parameters: ids, actor, reason (or NULL), filter (JSON: what was asked for).
-- The transaction has its id (the lock on `dead`) before nextval is called for `ready`.
WITH held AS MATERIALIZED (
    SELECT d.job_id
    FROM dead AS d
    WHERE d.job_id = ANY(%(ids)s::bigint[])
    ORDER BY d.job_id
    FOR UPDATE
),
gone AS (
    DELETE FROM dead AS d
    USING held AS h
    WHERE d.job_id = h.job_id
    RETURNING d.job_id
),
renewed AS (
    UPDATE job AS j
    SET attempt = 0,
        crashes = 0,
        run_at = clock_timestamp(),
        first_started_at = NULL,
        first_failed_at = NULL,
        cancel_requested_at = NULL,
        cancel_force_at = NULL,
        compensating = NULL
    FROM gone AS g
    WHERE j.id = g.job_id
    RETURNING j.id, j.queue, j.priority, j.limit_key, j.run_at
),
due_now AS (
    INSERT INTO ready (queue, priority, job_id)
    SELECT r.queue, r.priority, r.id FROM renewed AS r WHERE r.limit_key IS NULL ORDER BY r.id
    RETURNING job_id
),
-- Promotion sees to it that its limit is kept.
due_within_limits AS (
    INSERT INTO scheduled (run_at, job_id)
    SELECT r.run_at, r.id FROM renewed AS r WHERE r.limit_key IS NOT NULL
    RETURNING job_id
),
queued AS (
    SELECT job_id FROM due_now UNION ALL SELECT job_id FROM due_within_limits
),
noted AS (
    INSERT INTO audit (actor, action, target, count, reason)
    SELECT %(actor)s, 'replay', jsonb_build_object('asked', %(filter)s::jsonb, 'jobs', jsonb_agg(q.job_id)),
           count(*), %(reason)s
    FROM queued AS q
    HAVING count(*) > 0
)
SELECT job_id FROM queued;
