-- sweep_edges: edges older than history is kept, of children that are forgotten.
-- Index: job_edge_by_age, the primary key of job, history_by_id.
-- Parameters: keep (seconds), most.
DELETE FROM job_edge AS e
USING (
    SELECT o.child, o.parent
    FROM job_edge AS o
    WHERE o.created_at < now() - make_interval(secs => %(keep)s)
        AND NOT EXISTS (SELECT FROM job AS j WHERE j.id = o.child)
        AND NOT EXISTS (SELECT FROM history AS h WHERE h.id = o.child)
    ORDER BY o.created_at
    LIMIT %(most)s
) AS old
WHERE e.child = old.child AND e.parent = old.parent
RETURNING 1;
