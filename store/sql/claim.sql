-- claim: queued -> running, as many as a host has room for, in one statement.
-- Guard: FOR UPDATE SKIP LOCKED inside the limit; the placement row is deleted where the claim is
--   inserted, so that a job is in one place or the other.
-- Index: ready_claim, once per lane, from the mark upwards; lanes come in the order of preference.
--   Then ready_job and the primary key of job. `= ANY` and LATERAL with LIMIT, no plain joins: a
--   plan that was made while the tables were empty would walk one of them from end to end, for as
--   long as the connection lives.
-- Parameters: queues, priorities, lanes, marks, limits (one element a lane), most, session,
--   first_token (tokens are counted by the client: a sequence can hand out one twice after a
--   crash), backstop (seconds; the longest that any known type may hold a claim).
-- Args that no frame carries (8 MiB, less a little), which only raw SQL can have written, come as an
-- empty text: they are not run.
-- The CTE `run` is what the slot needs; no timestamp and no decoded JSON leaves here, so that one
-- strange row cannot spoil the batch.
WITH pick AS MATERIALIZED (
    SELECT x.queue, x.priority, x.lane, x.seq, x.job_id
    FROM unnest(%(queues)s::text[], %(priorities)s::smallint[], %(lanes)s::text[],
                %(marks)s::bigint[], %(limits)s::integer[]) AS l (queue, priority, lane, mark, most)
    CROSS JOIN LATERAL (
        SELECT r.queue, r.priority, r.lane, r.seq, r.job_id
        FROM ready AS r
        WHERE r.queue = l.queue AND r.priority = l.priority AND r.lane = l.lane AND r.seq > l.mark
        ORDER BY r.seq
        LIMIT l.most
        FOR UPDATE SKIP LOCKED
    ) AS x
    LIMIT %(most)s
),
taken AS (
    DELETE FROM ready AS r WHERE r.job_id = ANY(ARRAY(SELECT p.job_id FROM pick AS p))
),
run AS MATERIALIZED (
    SELECT
        p.*,
        %(first_token)s::bigint + row_number() OVER () - 1 AS token,
        j.type, j.key, j.subject, j.schema_version, j.attempt, j.crashes, j.max_attempts,
        j.timeout_seconds, j.args::text AS args, j.compensating IS TRUE AS compensating, j.traceparent,
        extract(epoch FROM clock_timestamp() - j.run_at)::double precision AS waited,
        extract(epoch FROM clock_timestamp() - j.created_at)::double precision AS age,
        extract(epoch FROM clock_timestamp() - j.first_started_at)::double precision AS elapsed
    FROM pick AS p
    CROSS JOIN LATERAL (SELECT * FROM job AS o WHERE o.id = p.job_id LIMIT 1) AS j
),
held AS (
    INSERT INTO claim (job_id, session_id, token, claimed_at, deadline_at)
    SELECT r.job_id, %(session)s, r.token, now(),
           now() + make_interval(secs => %(backstop)s + coalesce(least(r.timeout_seconds, 31536000), 0))
    FROM run AS r
)
SELECT queue, priority, lane, seq, job_id, token, type, key, subject, schema_version, attempt,
       crashes, max_attempts, timeout_seconds,
       CASE WHEN octet_length(args) > 8372224 THEN '' ELSE args END AS args,
       waited, age, elapsed, compensating, traceparent
FROM run;
