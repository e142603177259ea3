-- settle_succeeded: running -> succeeded, a batch.
-- Guard: (job, session, token) of the claim; a claim or a job that somebody has locked is skipped
--   and not returned: ask `settle_missing` about it. Whatever is returned is in history, once.
-- Index: the primary keys of claim, job and job_key. LATERAL with LIMIT and `= ANY`, no plain joins: a
--   plan that was made while the tables were empty would walk one of them from end to end, for as
--   long as the connection lives.
-- Parameters: jobs, tokens, results (arrays of the same length; a result is JSON text or NULL, and
--   parsed by itself: one job's text cannot pass for another's), session; steps (likewise: what each has
--   enqueued for when it succeeds, a JSON array or NULL; what PostgreSQL refuses of it fails the batch),
--   most_bytes (of the args of one of those), progress (a JSON object: what was said last by those that
--   said something, by token; see dated_progress).
-- What comes after these jobs is let go: release_children, asked only if there is an edge. History is
--   written before: a step may come after any of them.
WITH mine AS MATERIALIZED (
    SELECT a.job_id, a.token, a.result, a.steps, c.started_at
    FROM unnest(%(jobs)s::bigint[], %(tokens)s::bigint[], %(results)s::text[], %(steps)s::text[])
        AS a (job_id, token, result, steps)
    CROSS JOIN LATERAL (
        SELECT coalesce(o.started_at, o.claimed_at) AS started_at
        FROM claim AS o
        WHERE o.job_id = a.job_id AND o.token = a.token AND o.session_id = %(session)s
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS c
    -- The job too: an open transaction that has touched it must not hold up its neighbours.
    CROSS JOIN LATERAL (
        SELECT FROM job AS o WHERE o.id = a.job_id LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS j
),
freed AS (
    DELETE FROM claim AS c WHERE c.job_id = ANY(ARRAY(SELECT m.job_id FROM mine AS m))
),
gone AS (
    DELETE FROM job AS j
    USING mine AS m
    WHERE j.id = m.job_id AND j.id = ANY(%(jobs)s::bigint[])
    RETURNING j.*, m.token, m.result, m.steps, m.started_at
),
keys AS (
    UPDATE job_key AS k
    SET until = now() + make_interval(secs => k.ttl_seconds)
    WHERE k.ctid = ANY(ARRAY(
        SELECT h.at
        FROM gone AS g
        CROSS JOIN LATERAL (
            SELECT o.ctid AS at
            FROM job_key AS o
            WHERE o.type = g.type AND o.key = g.key AND o.job_id = g.id
            LIMIT 1
        ) AS h
        WHERE g.key IS NOT NULL
    ))
),
-- Only once all places are left is anybody let in: `admit` counts what is held then.
left_places AS (
    DELETE FROM place AS p
    WHERE p.job_id = ANY(ARRAY(SELECT g.id FROM gone AS g))
    RETURNING p.limit_key
),
let_in AS MATERIALIZED (
    SELECT settle_places(array_agg(o.limit_key), array_agg(o.n), array_agg(0), array_agg(NULL::double precision))
    FROM (SELECT l.limit_key, count(*)::integer AS n FROM left_places AS l GROUP BY l.limit_key) AS o
    HAVING count(*) > 0
),
kept AS (
    INSERT INTO history (
        id, type, queue, priority, key, subject, args, schema_version, max_attempts, attempt,
        crashes, run_at, created_at, started_at, finished_at, state, cancel_requested_at, progress,
        result, failure_class, last_error_code, last_error, first_failed_at, last_failed_at,
        session_id, token)
    SELECT
        g.id, g.type, g.queue, g.priority, g.key, g.subject, g.args, g.schema_version,
        g.max_attempts, least(g.attempt + 1::bigint, 2000000000), g.crashes, g.run_at, g.created_at,
        g.started_at, now(),
        'succeeded', g.cancel_requested_at,
        coalesce(dated_progress(%(progress)s::jsonb -> g.token::text), g.progress),
        g.result::jsonb,
        g.failure_class, g.last_error_code, g.last_error, g.first_failed_at, g.last_failed_at,
        %(session)s, g.token
    FROM gone AS g
    RETURNING id, token
),
stepped AS MATERIALIZED (
    SELECT enqueue_steps(g.id, g.steps::jsonb, %(most_bytes)s::integer)
    FROM gone AS g
    WHERE g.steps IS NOT NULL AND g.id = ANY(ARRAY(SELECT k.id FROM kept AS k))
),
-- By LATERAL with LIMIT too, although most batches have no edge: a plan for `parent = ANY` that PostgreSQL
-- before 17 has made while there was none walks job_edge_by_child from end to end.
released AS MATERIALIZED (
    SELECT release_children(array_agg(e.parent))
    FROM kept AS k
    CROSS JOIN LATERAL (SELECT o.parent FROM job_edge AS o WHERE o.parent = k.id LIMIT 1) AS e
    HAVING count(*) > 0
)
SELECT k.id, k.token, (SELECT count(*) FROM stepped) AS stepped,
       (SELECT count(*) FROM released) AS released, (SELECT count(*) FROM let_in) AS let_in
FROM kept AS k;
