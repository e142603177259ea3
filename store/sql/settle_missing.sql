-- settle_missing: what became of claims whose settling returned nothing.
-- 'locked': the claim is still ours, somebody holds its row: settle it again. 'settled': this very
--   claim has been settled (a COMMIT whose answer was lost, or the handler's own transaction).
--   No row: the claim was lost, and what the attempt did is not to be recorded.
-- Index: the primary key of claim, history_by_id, attempt_by_job.
-- Parameters: jobs, sessions, tokens (arrays of the same length).
SELECT
    a.job_id,
    a.token,
    CASE WHEN c.job_id IS NOT NULL THEN 'locked' ELSE 'settled' END AS fate
FROM unnest(%(jobs)s::bigint[], %(sessions)s::bigint[], %(tokens)s::bigint[])
    AS a (job_id, session_id, token)
LEFT JOIN claim AS c
    ON c.job_id = a.job_id AND c.session_id = a.session_id AND c.token = a.token
WHERE c.job_id IS NOT NULL
    OR EXISTS (
        SELECT FROM history AS h
        WHERE h.id = a.job_id AND h.session_id = a.session_id AND h.token = a.token)
    OR EXISTS (
        SELECT FROM attempt AS t
        WHERE t.job_id = a.job_id AND t.session_id = a.session_id AND t.token = a.token);
