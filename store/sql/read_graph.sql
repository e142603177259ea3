-- read_graph: a job with all that it comes after and all that comes after it, however far; at most
--   `most` jobs each way. No row if it comes after nothing and nothing after it. Whatever else comes after
--   the same jobs is left out.
-- Index: job_edge_by_child, job_edge_by_parent; then those of the view.
-- Parameters: id, most.
WITH RECURSIVE before AS (
    SELECT %(id)s::bigint AS id
    UNION
    SELECT e.parent
    FROM before AS b
    CROSS JOIN LATERAL (
        SELECT o.parent FROM job_edge AS o WHERE o.child = b.id ORDER BY o.parent DESC LIMIT %(most)s
    ) AS e
),
later AS (
    SELECT %(id)s::bigint AS id
    UNION
    SELECT e.child
    FROM later AS l
    CROSS JOIN LATERAL (
        SELECT o.child FROM job_edge AS o WHERE o.parent = l.id ORDER BY o.child LIMIT %(most)s
    ) AS e
),
around AS MATERIALIZED (
    (SELECT id FROM before LIMIT %(most)s) UNION (SELECT id FROM later LIMIT %(most)s)
)
SELECT
    a.id,
    j.type,
    j.state,
    j.key,
    j.failure_class,
    j.stuck_because,
    ARRAY(
        SELECT e.parent FROM job_edge AS e
        WHERE e.child = a.id AND e.parent IN (SELECT o.id FROM around AS o)
        ORDER BY e.parent
    ) AS after,
    ARRAY(
        SELECT e.parent FROM job_edge AS e
        WHERE e.child = a.id AND e.on_dead = 'cancel' AND e.parent IN (SELECT o.id FROM around AS o)
        ORDER BY e.parent
    ) AS cancelled_with
FROM around AS a
LEFT JOIN LATERAL (SELECT * FROM jobs AS o WHERE o.id = a.id LIMIT 1) AS j ON true
WHERE EXISTS (SELECT FROM around AS o WHERE o.id <> %(id)s)
ORDER BY a.id;
