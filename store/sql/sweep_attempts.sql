-- sweep_attempts: attempts older than history is kept, of jobs that are not open any more. Those of
--   a dead job stay as long as it does.
-- Index: attempt_by_age, and the primary key of job.
-- Parameters: keep (seconds), most.
DELETE FROM attempt AS a
USING (
    SELECT t.id
    FROM attempt AS t
    WHERE t.ended_at < now() - make_interval(secs => %(keep)s)
        AND NOT EXISTS (SELECT FROM job AS j WHERE j.id = t.job_id)
    ORDER BY t.ended_at
    LIMIT %(most)s
) AS old
WHERE a.id = old.id
RETURNING 1;
