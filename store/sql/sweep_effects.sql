-- sweep_effects: effects that nothing was written of for longer than they are kept, unless the job
--   that wrote last is still open: its next attempt will ask.
-- Index: effect_by_age, and the primary key of job.
-- Parameters: keep (seconds), most.
DELETE FROM effect AS e
USING (
    SELECT o.key
    FROM effect AS o
    WHERE o.at < now() - make_interval(secs => %(keep)s)
        AND NOT EXISTS (SELECT FROM job AS j WHERE j.id = o.job_id)
    ORDER BY o.at
    LIMIT %(most)s
) AS old
WHERE e.key = old.key
RETURNING 1;
