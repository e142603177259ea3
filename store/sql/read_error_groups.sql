-- read_error_groups: how many dead jobs have which error, of those that died last.
-- Index: dead_since, read backwards until `most`: that is the window, and the bound of the price. A
--   job's own row is looked at only if something about it was asked for.
-- Parameters: queue, type, subject, key, owner, error (a pattern of ILIKE), since, until: each may be NULL;
--   most (dead jobs that are looked at), groups (that are returned), samples (of each).
WITH newest AS MATERIALIZED (
    SELECT d.job_id, d.dead_since, d.error_group
    FROM dead AS d
    WHERE (%(since)s::timestamptz IS NULL OR d.dead_since >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR d.dead_since < %(until)s)
    ORDER BY d.dead_since DESC
    LIMIT %(most)s
)
SELECT
    n.error_group,
    count(*) AS jobs,
    min(n.dead_since) AS first_seen,
    max(n.dead_since) AS last_seen,
    (array_agg(n.job_id ORDER BY n.dead_since DESC, n.job_id DESC))[1:%(samples)s] AS samples
FROM newest AS n
WHERE coalesce(%(queue)s::text, %(type)s, %(subject)s, %(key)s, %(owner)s, %(error)s) IS NULL
    OR EXISTS (
        SELECT
        FROM job AS j
        WHERE j.id = n.job_id
            AND (%(queue)s::text IS NULL OR j.queue = %(queue)s)
            AND (%(type)s::text IS NULL OR j.type = %(type)s)
            AND (%(subject)s::text IS NULL OR j.subject = %(subject)s)
            AND (%(key)s::text IS NULL OR j.key = %(key)s)
            AND (%(owner)s::text IS NULL
                OR (SELECT t.owner FROM job_type AS t WHERE t.name = j.type) = %(owner)s)
            AND (%(error)s::text IS NULL OR j.failure_class ILIKE %(error)s
                OR j.last_error_code ILIKE %(error)s OR j.last_error ILIKE %(error)s)
    )
GROUP BY n.error_group
ORDER BY jobs DESC, last_seen DESC
LIMIT %(groups)s;
