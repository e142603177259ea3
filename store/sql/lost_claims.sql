-- lost_claims: running jobs that nobody runs: their session is dead or gone, or their deadline,
--   grace and a lease have passed. What to do with each is decided by the caller, who settles it
--   under the token that is returned here.
-- A scan of claim, which holds what runs now and nothing else.
-- Parameters: most.
SELECT
    c.session_id, j.queue, j.priority, c.job_id, c.token, j.type, j.key, j.subject,
    j.schema_version, j.attempt, j.crashes, j.max_attempts,
    extract(epoch FROM clock_timestamp() - j.created_at)::double precision AS age,
    extract(epoch FROM clock_timestamp() - coalesce(j.first_started_at, c.claimed_at))::double precision
        AS elapsed,
    n.host,
    CASE
        WHEN n.id IS NULL OR n.dead THEN coalesce(n.dead_because, 'the session of its supervisor is gone')
        ELSE 'past its deadline, grace and a lease'
    END AS because,
    c.marked IS TRUE AS marked
FROM claim AS c
CROSS JOIN LATERAL (SELECT * FROM job AS o WHERE o.id = c.job_id LIMIT 1) AS j
LEFT JOIN session AS n ON n.id = c.session_id
WHERE n.id IS NULL OR n.dead OR c.deadline_at < now()
ORDER BY c.job_id
LIMIT %(most)s;
