-- settle_ended: running -> retrying | scheduled | dead | cancelled | queued again, a batch of
--   endings that are not plain successes; whatever ended them, also for claims of other sessions.
-- Guard: (job, session, token) of the claim; a claim or a job that somebody has locked is skipped
--   and not returned: ask `settle_missing` about it. No two endings of one claim in a batch.
-- Index: the primary keys of claim, job and job_key. LATERAL with LIMIT and `= ANY`, no plain joins:
--   see settle_succeeded.
-- Parameters: jobs (array of ids), endings (a JSON array, one object a job):
--   job_id, session_id, token, place ('retry' | 'snooze' | 'dead' | 'cancelled' | 'compensate' |
--   'front' | 'lane'),
--   lane_version (place 'lane': the job moves to the lane of its type and this version),
--   outcome (NULL: it never started, no attempt is recorded), spent (attempts: 0 or 1), crashed
--   (0 or 1), delay (seconds), hold_limit (nobody of its limit starts before that is over), failed
--   (whether it counts as a failure of the job), host, slot, pid, started_ago (seconds), exit_reason,
--   signal, peak_memory_bytes, cpu_seconds, failure_class (of the job), error_class, error_code,
--   error, stack (of the attempt), error_group (place 'dead'), said (its last progress, see
--   dated_progress; absent: nothing that is not written yet).
-- A job that somebody has asked to cancel is never run again: what would be tried again is cancelled.
--   If it had begun and its type has an on_cancel hook, that hook is all that is left to run, once
--   ('compensate', which is what a kill by force asks for): the job waits at the front for it, and
--   however a hook ended that had started, the job is cancelled then.
WITH told AS MATERIALIZED (
    SELECT e.*
    FROM jsonb_to_recordset(%(endings)s::jsonb) AS e (
        job_id bigint, session_id bigint, token bigint, place text, lane_version integer,
        outcome text, spent integer, crashed integer, delay double precision, failed boolean,
        host text, slot integer, pid integer, started_ago double precision, exit_reason text,
        signal text, peak_memory_bytes bigint, cpu_seconds double precision, failure_class text,
        error_class text, error_code text, error text, stack text, error_group text,
        hold_limit boolean, said jsonb)
),
judged AS MATERIALIZED (
    SELECT
        t.*,
        c.slot AS claim_slot, c.pid AS claim_pid,
        CASE
            WHEN t.outcome IS NULL THEN NULL
            WHEN t.started_ago IS NULL THEN coalesce(c.started_at, c.claimed_at)
            ELSE now() - make_interval(secs => t.started_ago)
        END AS started_at,
        coalesce(dated_progress(t.said), j.progress) AS progress,
        j.attempt AS before_attempt, j.queue, j.priority, j.type, j.cancel_requested_at,
        CASE
            WHEN j.compensating AND t.outcome IS NOT NULL AND t.outcome <> 'interrupted' THEN 'cancelled'
            WHEN j.compensating THEN CASE WHEN t.place = 'lane' THEN 'lane' ELSE 'front' END
            WHEN t.place NOT IN ('retry', 'snooze', 'front', 'lane', 'compensate') THEN t.place
            WHEN t.place <> 'compensate' AND j.cancel_requested_at IS NULL THEN t.place
            WHEN (t.outcome IS NOT NULL OR j.attempt > 0 OR j.first_started_at IS NOT NULL
                    OR (SELECT true FROM attempt AS a WHERE a.job_id = t.job_id LIMIT 1))
                AND (SELECT o.on_cancel FROM job_type AS o WHERE o.name = j.type LIMIT 1)
                THEN 'front'
            ELSE 'cancelled'
        END AS goes_to,
        now() + make_interval(secs => coalesce(t.delay, 0)) AS next_run_at
    FROM told AS t
    CROSS JOIN LATERAL (
        SELECT o.started_at, o.claimed_at, o.slot, o.pid
        FROM claim AS o
        WHERE o.job_id = t.job_id AND o.session_id = t.session_id AND o.token = t.token
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS c
    CROSS JOIN LATERAL (
        SELECT o.attempt, o.progress, o.queue, o.priority, o.type, o.cancel_requested_at,
               o.compensating, o.first_started_at
        FROM job AS o
        WHERE o.id = t.job_id
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS j
),
ended AS MATERIALIZED (
    SELECT
        g.*,
        g.goes_to IN ('front', 'lane') AND (g.cancel_requested_at IS NOT NULL OR g.place = 'compensate')
            AS compensates
    FROM judged AS g
),
freed AS (
    DELETE FROM claim AS c WHERE c.job_id = ANY(ARRAY(SELECT e.job_id FROM ended AS e))
),
kept_open AS (
    UPDATE job AS j
    SET attempt = least(j.attempt + e.spent::bigint, 2000000000),
        crashes = least(j.crashes + e.crashed::bigint, 2000000000),
        run_at = CASE WHEN e.goes_to IN ('retry', 'snooze') THEN e.next_run_at ELSE j.run_at END,
        first_started_at = coalesce(j.first_started_at, e.started_at),
        progress = e.progress,
        -- A hook is not killed for the request that it answers.
        compensating = e.compensates OR NULL,
        cancel_force_at = NULL,
        cancel_requested_at = CASE WHEN e.compensates THEN coalesce(j.cancel_requested_at, now()) ELSE j.cancel_requested_at END,
        failure_class = CASE WHEN e.failed THEN e.failure_class ELSE j.failure_class END,
        last_error_code = CASE WHEN e.failed THEN e.error_code ELSE j.last_error_code END,
        last_error = CASE WHEN e.failed THEN left(e.error, 4000) ELSE j.last_error END,
        first_failed_at = CASE WHEN e.failed THEN coalesce(j.first_failed_at, now()) ELSE j.first_failed_at END,
        last_failed_at = CASE WHEN e.failed THEN now() ELSE j.last_failed_at END
    FROM ended AS e
    WHERE j.id = e.job_id AND j.id = ANY(%(jobs)s::bigint[]) AND e.goes_to <> 'cancelled'
        AND (e.goes_to IN ('retry', 'snooze', 'dead') OR e.outcome IS NOT NULL
            OR e.compensates)
    RETURNING j.id
),
gone AS (
    DELETE FROM job AS j
    USING ended AS e
    WHERE j.id = e.job_id AND j.id = ANY(%(jobs)s::bigint[]) AND e.goes_to = 'cancelled'
    RETURNING j.*, e.spent, e.crashed, e.started_at, e.session_id, e.token, e.failed,
        e.progress AS last_progress,
        e.failure_class AS its_class, e.error_code AS its_code, left(e.error, 4000) AS its_error
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
into_history AS (
    INSERT INTO history (
        id, type, queue, priority, key, subject, args, schema_version, max_attempts, attempt,
        crashes, run_at, created_at, started_at, finished_at, state, cancel_requested_at, progress,
        failure_class, last_error_code, last_error, first_failed_at, last_failed_at, session_id,
        token)
    SELECT
        g.id, g.type, g.queue, g.priority, g.key, g.subject, g.args, g.schema_version,
        g.max_attempts, least(g.attempt + g.spent::bigint, 2000000000),
        least(g.crashes + g.crashed::bigint, 2000000000), g.run_at, g.created_at,
        g.started_at, now(), 'cancelled', g.cancel_requested_at, g.last_progress,
        CASE WHEN g.failed THEN g.its_class ELSE g.failure_class END,
        CASE WHEN g.failed THEN g.its_code ELSE g.last_error_code END,
        CASE WHEN g.failed THEN g.its_error ELSE g.last_error END,
        CASE WHEN g.failed THEN coalesce(g.first_failed_at, now()) ELSE g.first_failed_at END,
        CASE WHEN g.failed THEN now() ELSE g.last_failed_at END,
        g.session_id, g.token
    FROM gone AS g
),
into_scheduled AS (
    INSERT INTO scheduled (run_at, job_id, retry)
    SELECT e.next_run_at, e.job_id, e.goes_to = 'retry'
    FROM ended AS e
    WHERE e.goes_to IN ('retry', 'snooze')
),
into_dead AS (
    INSERT INTO dead (job_id, error_group)
    SELECT e.job_id, e.error_group FROM ended AS e WHERE e.goes_to = 'dead'
),
-- A claim was deleted above, so the transaction has its id before nextval is called here.
into_ready AS (
    INSERT INTO ready (queue, priority, lane, job_id)
    SELECT
        e.queue, e.priority,
        CASE WHEN e.goes_to = 'lane' THEN 'type:' || e.type || '@' || e.lane_version ELSE 'front' END,
        e.job_id
    FROM ended AS e
    WHERE e.goes_to IN ('front', 'lane')
    ORDER BY e.token
),
lanes AS (
    INSERT INTO lane (queue, priority, lane, type, schema_version)
    SELECT DISTINCT e.queue, e.priority, 'type:' || e.type || '@' || e.lane_version, e.type, e.lane_version
    FROM ended AS e
    WHERE e.goes_to = 'lane'
    -- Touched even if it is there: see sweep_lanes.
    ON CONFLICT (queue, priority, lane) DO UPDATE SET created_at = now()
    RETURNING lane.lane
),
noted AS (
    INSERT INTO attempt (
        job_id, attempt, outcome, host, slot, pid, started_at, exit_reason, signal,
        peak_memory_bytes, cpu_seconds, error_class, error_code, error, stack, progress, session_id,
        token)
    SELECT
        e.job_id, least(e.before_attempt + 1::bigint, 2000000000), e.outcome, e.host, coalesce(e.slot, e.claim_slot),
        coalesce(e.pid, e.claim_pid), e.started_at, e.exit_reason, e.signal, e.peak_memory_bytes,
        e.cpu_seconds, e.error_class, e.error_code, e.error, e.stack, e.progress,
        e.session_id, e.token
    FROM ended AS e
    WHERE e.outcome IS NOT NULL
),
-- What is queued again keeps its place; whatever else has ended leaves it.
left_places AS (
    DELETE FROM place AS p
    WHERE p.job_id = ANY(ARRAY(SELECT e.job_id FROM ended AS e WHERE e.goes_to NOT IN ('front', 'lane')))
    RETURNING p.job_id, p.limit_key
),
let_in AS MATERIALIZED (
    SELECT settle_places(array_agg(o.limit_key), array_agg(0), array_agg(o.bad), array_agg(o.hold))
    FROM (
        SELECT
            l.limit_key,
            (count(*) FILTER (WHERE e.failed))::integer AS bad,
            max(e.delay) FILTER (WHERE e.hold_limit) AS hold
        FROM left_places AS l
        JOIN ended AS e ON e.job_id = l.job_id
        GROUP BY l.limit_key
    ) AS o
    HAVING count(*) > 0
),
bells AS MATERIALIZED (
    SELECT CASE
        WHEN EXISTS (SELECT FROM lanes) THEN announce()
        WHEN EXISTS (SELECT FROM ended WHERE goes_to IN ('front', 'lane')) THEN ring()
    END
),
-- What was to be cancelled when one of these never succeeds; asked only if there is an edge.
let_down AS MATERIALIZED (
    SELECT cancel_children(array_agg(DISTINCT d.parent))
    FROM job_edge AS d
    WHERE d.parent = ANY(ARRAY(SELECT e.job_id FROM ended AS e WHERE e.goes_to IN ('dead', 'cancelled')))
        AND d.on_dead = 'cancel' AND d.met_at IS NULL
    HAVING count(*) > 0
)
SELECT e.job_id, e.token, e.goes_to, e.before_attempt + e.spent::bigint AS attempt,
       (SELECT count(*) FROM bells) AS rung,
       extract(epoch FROM now() - e.cancel_requested_at)::double precision AS requested_ago,
       (SELECT count(*) FROM let_in) AS let_in,
       (SELECT count(*) FROM let_down) AS let_down
FROM ended AS e;
