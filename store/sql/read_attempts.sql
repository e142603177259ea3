-- read_attempts: a job's attempts that did not simply succeed, in their order.
-- Index: attempt_by_job. The numbers of attempts begin anew after a replay; the rows' own do not.
-- Parameters: id.
SELECT
    attempt,
    outcome,
    host,
    slot,
    pid,
    started_at,
    ended_at,
    exit_reason,
    signal,
    peak_memory_bytes,
    cpu_seconds,
    error_class,
    error_code,
    error,
    stack,
    progress
FROM attempt
WHERE job_id = %(id)s
ORDER BY id;
