-- promote: scheduled, retrying -> queued, when run_at has come. By any dispatcher.
-- Guard: FOR UPDATE SKIP LOCKED; the delete comes before nextval, so the transaction has its id.
-- Index: scheduled_due, from its start.
-- Parameters: most.
-- Returns how many moved and in how many seconds the next one is due (NULL: none is waiting).
WITH due AS MATERIALIZED (
    SELECT s.run_at, s.job_id
    FROM scheduled AS s
    -- In a SELECT of its own: a volatile function in the condition would keep the index from ending
    -- the search, and every call would walk through all that is not due yet.
    WHERE s.run_at <= (SELECT clock_timestamp())
    ORDER BY s.run_at, s.job_id
    LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM scheduled AS s
    USING due AS d
    WHERE s.run_at = d.run_at AND s.job_id = d.job_id
    RETURNING s.run_at, s.job_id
),
placed AS (
    INSERT INTO ready (queue, priority, job_id)
    SELECT j.queue, j.priority, t.job_id
    FROM taken AS t
    JOIN job AS j ON j.id = t.job_id
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
        SELECT extract(epoch FROM s.run_at - clock_timestamp())::double precision
        FROM scheduled AS s
        WHERE s.run_at > now()
        ORDER BY s.run_at
        LIMIT 1
    ) AS next_in;
