-- read_dead_ids: which dead jobs match, those that died last first.
-- Index: dead_since, read backwards; since and until are when they died.
-- Parameters: queue, type, subject, key, owner, error (a pattern of ILIKE), since, until: each may be NULL;
--   ungrouped (only those without a group of errors); most.
SELECT d.job_id
FROM dead AS d
CROSS JOIN LATERAL (
    SELECT
    FROM job AS j
    WHERE j.id = d.job_id
        AND (%(queue)s::text IS NULL OR j.queue = %(queue)s)
        AND (%(type)s::text IS NULL OR j.type = %(type)s)
        AND (%(subject)s::text IS NULL OR j.subject = %(subject)s)
        AND (%(key)s::text IS NULL OR j.key = %(key)s)
        AND (%(owner)s::text IS NULL
            OR (SELECT t.owner FROM job_type AS t WHERE t.name = j.type) = %(owner)s)
        AND (%(error)s::text IS NULL OR j.failure_class ILIKE %(error)s
            OR j.last_error_code ILIKE %(error)s OR j.last_error ILIKE %(error)s)
    LIMIT 1
) AS matching
WHERE (%(since)s::timestamptz IS NULL OR d.dead_since >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR d.dead_since < %(until)s)
    AND (NOT %(ungrouped)s OR d.error_group IS NULL)
ORDER BY d.dead_since DESC, d.job_id DESC
LIMIT %(most)s;
