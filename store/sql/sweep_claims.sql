-- sweep_claims: claims of jobs that are not there, because somebody has deleted rows by hand. Nothing
--   of ours does: a job and its place go in one statement. Whoever runs such a job learns at its
--   end that the claim was lost.
-- A scan of claim, which holds what runs now and nothing else.
-- Parameters: most.
DELETE FROM claim AS c
USING (
    SELECT o.job_id
    FROM claim AS o
    WHERE NOT EXISTS (SELECT FROM job AS j WHERE j.id = o.job_id)
    ORDER BY o.job_id
    LIMIT %(most)s
    FOR UPDATE OF o SKIP LOCKED
) AS orphan
WHERE c.job_id = orphan.job_id
RETURNING 1;
