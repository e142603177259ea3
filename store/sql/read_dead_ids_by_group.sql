-- read_dead_ids_by_group: as read_dead_ids, of one group of errors.
-- Index: dead_by_group, read backwards.
-- Parameters: error_group; subject, key, owner, queue, type, error (a pattern of ILIKE), since, until: each
--   may be NULL; most.
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
-- As rows, and in the order of the index: a group that is rare is not looked for among all the others.
WHERE (d.error_group, d.dead_since)
        >= (%(error_group)s::text, coalesce(%(since)s::timestamptz, '-infinity'))
    AND (d.error_group, d.dead_since)
        < (%(error_group)s::text, coalesce(%(until)s::timestamptz, 'infinity'))
ORDER BY d.error_group DESC, d.dead_since DESC
LIMIT %(most)s;
