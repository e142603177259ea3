-- read_held: what these supervisors still hold, what has run the longest first.
-- A scan of claim, which holds what all hosts run and no more; job and session by primary key.
-- Parameters: sessions (ids), most.
SELECT
    c.job_id AS id,
    j.type,
    n.host,
    c.slot,
    extract(epoch FROM now() - coalesce(c.started_at, c.claimed_at))::double precision AS seconds
FROM claim AS c
JOIN session AS n ON n.id = c.session_id
JOIN job AS j ON j.id = c.job_id
WHERE c.session_id = ANY(%(sessions)s::bigint[])
ORDER BY coalesce(c.started_at, c.claimed_at), c.job_id
LIMIT %(most)s;
