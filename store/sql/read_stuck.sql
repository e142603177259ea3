-- read_stuck: running jobs that nobody looks after any more, the longest first.
-- Index: none: claim holds what all hosts run and keep in reserve, and no more.
-- Parameters: most.
SELECT
    c.job_id AS id,
    j.type,
    j.queue,
    n.host,
    c.claimed_at,
    CASE
        WHEN c.deadline_at < now() THEN 'past its deadline and grace'
        WHEN n.id IS NULL OR n.dead THEN 'its supervisor is gone'
        ELSE 'the lease of its supervisor is over'
    END AS because
FROM claim AS c
JOIN job AS j ON j.id = c.job_id
LEFT JOIN session AS n ON n.id = c.session_id
WHERE c.deadline_at < now() OR n.id IS NULL OR n.dead OR n.expires_at < now()
ORDER BY c.claimed_at
LIMIT %(most)s;
