-- read_unrunnable: queued jobs that no live supervisor has code for: in the lanes that their
--   claimers moved them to, of types that nobody alive has registered, or of a newer version than
--   the newest registered code. Counted up to a bound.
-- Index: ready_claim, a lane at a time.
-- Parameters: most.
SELECT
    l.type,
    l.schema_version,
    l.queue,
    sum(r.jobs)::bigint AS jobs,
    CASE
        WHEN live.knows IS NOT TRUE THEN 'no live supervisor has code for this type'
        ELSE 'no code is new enough for these arguments'
    END AS because
FROM lane AS l
CROSS JOIN LATERAL (
    SELECT bool_or(l.type = ANY(n.types) AND (n.queues IS NULL OR l.queue = ANY(n.queues))) AS knows
    FROM session AS n
    WHERE NOT n.dead AND n.expires_at > now()
) AS live
LEFT JOIN job_type AS t ON t.name = l.type
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs
    FROM (
        SELECT FROM ready AS r
        WHERE r.queue = l.queue AND r.priority = l.priority AND r.lane = l.lane
        LIMIT %(most)s
    ) AS waiting
) AS r
WHERE (live.knows IS NOT TRUE OR t.schema_version < l.schema_version) AND r.jobs > 0
GROUP BY l.type, l.schema_version, l.queue, live.knows
ORDER BY jobs DESC, l.type, l.queue;
