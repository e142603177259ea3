-- read_ids_by_parent: as read_ids, for the jobs that come after one.
-- Index: job_edge_by_parent, the primary key of job, history_by_id.
-- Parameters: parent; subject, key, state, queue, type, error, since, until, after: each may be NULL; most.
SELECT j.id
FROM job_edge AS e
CROSS JOIN LATERAL (SELECT * FROM jobs AS o WHERE o.id = e.child LIMIT 1) AS j
WHERE e.parent = %(parent)s
    AND (%(subject)s::text IS NULL OR j.subject = %(subject)s)
    AND (%(key)s::text IS NULL OR j.key = %(key)s)
    AND (%(state)s::text IS NULL OR j.state = %(state)s)
    AND (%(after)s::bigint IS NULL OR j.id < %(after)s)
    AND (%(queue)s::text IS NULL OR j.queue = %(queue)s)
    AND (%(type)s::text IS NULL OR j.type = %(type)s)
    AND (%(since)s::timestamptz IS NULL OR j.created_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR j.created_at < %(until)s)
    AND (%(error)s::text IS NULL OR j.failure_class ILIKE %(error)s
        OR j.last_error_code ILIKE %(error)s OR j.last_error ILIKE %(error)s)
ORDER BY j.id DESC
LIMIT %(most)s;
