-- promote: scheduled, retrying -> queued, when run_at has come. By any dispatcher.
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
placed AS (
    INSERT INTO ready (queue, priority, job_id)
    SELECT j.queue, j.priority, t.job_id
    FROM taken AS t
    CROSS JOIN LATERAL (
        SELECT o.queue, o.priority FROM job AS o WHERE o.id = t.job_id LIMIT 1
    ) AS j
    ORDER BY t.run_at, t.job_id
    RETURNING job_id
),
bell AS MATERIALIZED (
    SELECT ring() FROM (SELECT count(*) AS n FROM placed) AS c WHERE c.n > 0
)
SELECT
    (SELECT count(*) FROM placed) AS moved,
    (SELECT count(*) FROM bell) AS rung,
    (
        SELECT extract(epoch FROM s.run_at - now())::double precision
        FROM scheduled AS s
        WHERE s.run_at > now()
        ORDER BY s.run_at
        LIMIT 1
    ) AS next_in;
