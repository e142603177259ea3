-- What it looks like: for people, and for SQL. New columns come last, so that CREATE OR REPLACE goes on
-- working and nobody's own views are in the way.

-- All jobs as one table with a word for where each stands.
CREATE OR REPLACE VIEW jobs AS
SELECT
    j.id, j.type, j.queue, j.priority, p.state, j.key, j.subject, t.owner, j.args, j.schema_version,
    CASE WHEN c.job_id IS NOT NULL THEN j.attempt + 1 ELSE j.attempt END AS attempt,
    coalesce(j.max_attempts, t.max_attempts, 5) AS max_attempts,
    j.crashes, j.run_at, j.created_at,
    coalesce(c.started_at, c.claimed_at, j.first_started_at) AS started_at,
    NULL::timestamptz AS finished_at,
    n.host || ':' || coalesce(c.slot::text, '?') AS locked_by,
    CASE WHEN c.job_id IS NOT NULL THEN least(c.deadline_at, n.expires_at) END AS locked_until,
    j.cancel_requested_at, j.progress, NULL::jsonb AS result,
    j.failure_class, j.last_error_code, j.last_error, j.first_failed_at, j.last_failed_at,
    w.because IS NOT NULL AS stuck,
    w.because AS stuck_because,
    d.dead_since,
    CASE WHEN b.job_id IS NOT NULL THEN b.waits_for END AS waits_for,
    j.limit_key
FROM job AS j
LEFT JOIN ready AS r ON r.job_id = j.id
LEFT JOIN scheduled AS s ON s.job_id = j.id
LEFT JOIN claim AS c ON c.job_id = j.id
LEFT JOIN blocked AS b ON b.job_id = j.id
LEFT JOIN dead AS d ON d.job_id = j.id
LEFT JOIN session AS n ON n.id = c.session_id
LEFT JOIN job_type AS t ON t.name = j.type
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN c.job_id IS NOT NULL THEN 'running'
        WHEN r.job_id IS NOT NULL THEN 'queued'
        WHEN s.retry THEN 'retrying'
        WHEN s.job_id IS NOT NULL THEN 'scheduled'
        WHEN b.job_id IS NOT NULL THEN 'blocked'
        WHEN d.job_id IS NOT NULL THEN 'dead'
        ELSE 'misplaced'
    END AS state
) AS p
CROSS JOIN LATERAL (
    SELECT CASE
        -- What it comes after is dead, or has ended and will never succeed.
        WHEN b.waits_for > 0 THEN (
            SELECT format('job %s, which it comes after, %s', e.parent, CASE
                WHEN x.job_id IS NOT NULL THEN 'is dead'
                ELSE coalesce('was ' || f.state, 'did not succeed and is forgotten')
            END)
            FROM job_edge AS e
            LEFT JOIN job AS o ON o.id = e.parent
            LEFT JOIN dead AS x ON x.job_id = e.parent
            LEFT JOIN LATERAL (
                SELECT h.state FROM history AS h WHERE h.id = e.parent LIMIT 1
            ) AS f ON true
            WHERE e.child = b.job_id AND e.met_at IS NULL AND f.state IS DISTINCT FROM 'succeeded'
                AND (x.job_id IS NOT NULL OR o.id IS NULL)
            LIMIT 1
        )
        WHEN c.job_id IS NULL THEN NULL
        WHEN c.deadline_at < now() THEN 'past its deadline and grace'
        WHEN n.id IS NULL OR n.dead THEN 'its supervisor is gone'
        WHEN n.expires_at < now() THEN 'the lease of its supervisor is over'
    END AS because
) AS w
UNION ALL
SELECT
    h.id, h.type, h.queue, h.priority, h.state, h.key, h.subject, t.owner, h.args, h.schema_version,
    h.attempt, coalesce(h.max_attempts, t.max_attempts, 5), h.crashes, h.run_at, h.created_at,
    h.started_at, h.finished_at, NULL, NULL, h.cancel_requested_at, h.progress, h.result,
    h.failure_class, h.last_error_code, h.last_error, h.first_failed_at, h.last_failed_at,
    false, NULL, NULL, NULL, NULL
FROM history AS h
LEFT JOIN job_type AS t ON t.name = h.type;

-- One row per ended attempt that did not simply succeed.
CREATE OR REPLACE VIEW attempts AS
SELECT job_id, attempt, outcome, host, slot, pid, started_at, ended_at, exit_reason, signal,
       peak_memory_bytes, cpu_seconds, error_class, error_code, error, stack, progress
FROM attempt;

-- Which job comes after which; `met_at`: since when the child does not wait for this parent any more.
CREATE OR REPLACE VIEW edges AS
SELECT parent, child, on_dead, met_at, created_at
FROM job_edge;
