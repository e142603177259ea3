-- read_progress: running jobs that have said how far they are, those that have run longest first.
-- A scan of claim, which holds what runs now and nothing else, and the primary key of job.
-- Parameters: most.
SELECT j.id, j.type, j.progress, coalesce(c.started_at, c.claimed_at) AS started_at
FROM claim AS c
CROSS JOIN LATERAL (
    SELECT o.id, o.type, o.progress FROM job AS o WHERE o.id = c.job_id LIMIT 1
) AS j
WHERE j.progress IS NOT NULL
ORDER BY coalesce(c.started_at, c.claimed_at), j.id
LIMIT %(most)s;
