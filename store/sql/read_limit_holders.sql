-- read_limit_holders: who holds the places of a key, the oldest first.
-- Index: place_by_key, the primary keys.
-- Parameters: key, most.
SELECT p.job_id, j.type, p.admitted_at, c.claimed_at, n.host, c.slot
FROM place AS p
LEFT JOIN job AS j ON j.id = p.job_id
LEFT JOIN claim AS c ON c.job_id = p.job_id
LEFT JOIN session AS n ON n.id = c.session_id
WHERE p.limit_key = %(key)s
ORDER BY p.admitted_at, p.job_id
LIMIT %(most)s;
