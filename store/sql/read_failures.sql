-- read_failures: what is known of the last failure of each of these open jobs.
-- Index: the primary keys of job and attempt, attempt_by_job (`+ 0`: the last attempt of a job is not
--   looked for from the end of the table).
-- Parameters: ids.
SELECT
    j.id,
    j.type,
    j.failure_class,
    j.last_error_code,
    j.last_error,
    a.stack
FROM unnest(%(ids)s::bigint[]) AS w (id)
CROSS JOIN LATERAL (SELECT * FROM job AS o WHERE o.id = w.id LIMIT 1) AS j
LEFT JOIN LATERAL (
    SELECT t.stack
    FROM attempt AS t
    WHERE t.id = (SELECT max(o.id + 0) FROM attempt AS o WHERE o.job_id = j.id)
    LIMIT 1
) AS a ON true;
