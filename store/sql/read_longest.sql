-- read_longest: what has been running for longest.
-- Index: none: claim holds what all hosts run and keep in reserve, and no more.
-- Parameters: most.
SELECT
    c.job_id AS id,
    j.type,
    j.queue,
    n.host,
    c.slot,
    coalesce(c.started_at, c.claimed_at) AS since,
    c.deadline_at,
    j.attempt + 1 AS attempt,
    j.cancel_requested_at IS NOT NULL AS cancel_requested,
    j.progress
FROM claim AS c
JOIN job AS j ON j.id = c.job_id
LEFT JOIN session AS n ON n.id = c.session_id
ORDER BY since, c.job_id
LIMIT %(most)s;
