-- read_lanes: what a dispatcher keeps in memory: queues that are not paused, lanes of types.
-- Parameters: none.
SELECT q.name, NULL::smallint AS priority, NULL::text AS lane, NULL::text AS type, NULL::integer AS schema_version
FROM queue AS q
WHERE q.paused_at IS NULL
UNION ALL
SELECT l.queue, l.priority, l.lane, l.type, l.schema_version
FROM lane AS l
JOIN queue AS q ON q.name = l.queue AND q.paused_at IS NULL
ORDER BY 1, 2, 3;
