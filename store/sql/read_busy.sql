-- read_busy: what each supervisor holds, by type, the most first.
-- Index: none: claim holds what all hosts run and keep in reserve, and no more.
-- Parameters: none.
SELECT
    c.session_id AS session,
    j.type,
    count(*) AS jobs,
    min(c.claimed_at) AS since
FROM claim AS c
JOIN job AS j ON j.id = c.job_id
GROUP BY c.session_id, j.type
ORDER BY jobs DESC, j.type;
