-- count_enqueued: jobs of these numbers by queue and type, wherever they stand now; and whether any
--   host has ever registered the type.
-- Index: the primary key of job and history_by_id; bounded by the caller.
-- Parameters: after, up_to.
SELECT c.queue, c.type, c.jobs, EXISTS (SELECT FROM job_type AS t WHERE t.name = c.type) AS registered
FROM (
    SELECT n.queue, n.type, count(*) AS jobs
    FROM (
        SELECT j.queue, j.type FROM job AS j WHERE j.id > %(after)s AND j.id <= %(up_to)s
        UNION ALL
        SELECT h.queue, h.type FROM history AS h WHERE h.id > %(after)s AND h.id <= %(up_to)s
    ) AS n
    GROUP BY n.queue, n.type
) AS c;
