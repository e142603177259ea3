-- read_jobs: these jobs, as the contract's view shows them, with the template of their type's link.
-- Index: the primary keys of job and of the placements, history_by_id, the primary key of job_type.
-- Parameters: ids.
SELECT
    id,
    type,
    queue,
    priority,
    state,
    key,
    subject,
    owner,
    args,
    schema_version,
    attempt,
    max_attempts,
    crashes,
    run_at,
    created_at,
    started_at,
    finished_at,
    locked_by,
    locked_until,
    cancel_requested_at,
    progress,
    result,
    failure_class,
    last_error_code,
    last_error,
    first_failed_at,
    last_failed_at,
    stuck,
    stuck_because,
    dead_since,
    waits_for,
    limit_key,
    (SELECT t.link FROM job_type AS t WHERE t.name = jobs.type) AS link
FROM jobs
WHERE id = ANY(%(ids)s::bigint[]);
