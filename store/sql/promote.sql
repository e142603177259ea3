-- promote: scheduled, retrying -> queued, when run_at has come; or blocked, if its limit has not let it
--   in yet. By any dispatcher.
-- Guard: FOR UPDATE SKIP LOCKED; the delete comes before nextval, so the transaction has its id.
-- Index: scheduled_due, both ends of the range: now(), because with a volatile clock it would be read
--   to its end, through all that is not due yet.
--   Then scheduled_job and the primary key of job.
-- Parameters: most; within (seconds, NULL: any): what has been due for longer is left for a look
--   without this bound. Below it may lie all that was promoted since an old snapshot was taken.
-- Returns how many moved and in how many seconds the next one is due (NULL: none is waiting).
WITH due AS MATERIALIZED (
    SELECT s.run_at, s.job_id
    FROM scheduled AS s
    WHERE s.run_at <= now()
        AND s.run_at > coalesce(now() - make_interval(secs => %(within)s), '-infinity')
    ORDER BY s.run_at, s.job_id
    LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM scheduled AS s
    WHERE s.job_id = ANY(ARRAY(SELECT d.job_id FROM due AS d))
    RETURNING s.run_at, s.job_id
),
due_job AS MATERIALIZED (
    SELECT
        t.run_at, t.job_id, j.queue, j.priority, j.limit_key,
        j.limit_key IS NOT NULL
            AND (SELECT p.job_id FROM place AS p WHERE p.job_id = t.job_id LIMIT 1) IS NULL AS waits
    FROM taken AS t
    CROSS JOIN LATERAL (
        SELECT o.queue, o.priority, o.limit_key FROM job AS o WHERE o.id = t.job_id LIMIT 1
    ) AS j
),
placed AS (
    INSERT INTO ready (queue, priority, job_id)
    SELECT d.queue, d.priority, d.job_id
    FROM due_job AS d
    WHERE NOT d.waits
    ORDER BY d.run_at, d.job_id
    RETURNING job_id
),
waiting AS (
    INSERT INTO blocked (job_id, reason, limit_key, priority, seq)
    SELECT o.job_id, 'limit', o.limit_key, o.priority, nextval('ready_seq')
    FROM (SELECT * FROM due_job AS d WHERE d.waits ORDER BY d.run_at, d.job_id) AS o
),
noted AS (
    INSERT INTO limit_arrival (limit_key)
    SELECT DISTINCT d.limit_key FROM due_job AS d WHERE d.waits
),
bell AS MATERIALIZED (
    SELECT ring() FROM (SELECT count(*) AS n FROM due_job) AS c WHERE c.n > 0
)
SELECT
    (SELECT count(*) FROM due_job) AS moved,
    (SELECT count(*) FROM bell) AS rung,
    (
        SELECT extract(epoch FROM s.run_at - now())::double precision
        FROM scheduled AS s
        WHERE s.run_at > now()
        ORDER BY s.run_at
        LIMIT 1
    ) AS next_in;
