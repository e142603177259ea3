-- What comes after what: how a job comes to wait for others, and who lets it go.
--
-- One way in (`hold_steps`), one way out when all parents have succeeded (`release_children`), one when
-- one of them never will (`cancel_children`). Both ways out lock the children in `blocked` in the order
-- of their ids, so that parents that finish at once, on whatever hosts, follow each other; neither fails,
-- nor waits for long: what is not let go here is let go by the leader's sweep (`sweep_children`).

-- Places jobs that stand nowhere because nothing holds them any more: `scheduled` while their time is to
-- come, `blocked` again while their limit has to let them in, else `ready`. Everything that leaves
-- `blocked` because what it came after has succeeded passes here.
CREATE OR REPLACE FUNCTION place_jobs(ids bigint[]) RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    moment    constant timestamptz := clock_timestamp();
    any_due   boolean;
    any_named boolean;
BEGIN
    -- Before any nextval('ready_seq'): the low-water marks rest on it.
    PERFORM pg_current_xact_id();
    WITH placed AS MATERIALIZED (
        SELECT j.id, j.queue, j.priority, j.run_at, j.limit_key
        FROM unnest(ids) AS i (id)
        CROSS JOIN LATERAL (
            SELECT o.id, o.queue, o.priority, o.run_at, o.limit_key FROM job AS o WHERE o.id = i.id LIMIT 1
        ) AS j
    ),
    -- It was not due before: how long a job waits for a slot is counted from here.
    due AS (
        UPDATE job AS j
        SET run_at = moment
        WHERE j.id = ANY(ARRAY(SELECT p.id FROM placed AS p WHERE p.run_at < moment))
    ),
    queued AS (
        INSERT INTO ready (queue, priority, job_id)
        SELECT p.queue, p.priority, p.id
        FROM placed AS p
        WHERE p.run_at <= moment AND p.limit_key IS NULL
        ORDER BY p.id
        RETURNING ready.job_id
    ),
    -- Not let in here: see enqueue_many.
    waiting AS (
        INSERT INTO blocked (job_id, reason, limit_key, priority, seq)
        SELECT o.id, 'limit', o.limit_key, o.priority, nextval('ready_seq')
        FROM (
            SELECT * FROM placed AS p WHERE p.run_at <= moment AND p.limit_key IS NOT NULL ORDER BY p.id
        ) AS o
    ),
    arrived AS (
        INSERT INTO limit_arrival (limit_key)
        SELECT DISTINCT p.limit_key FROM placed AS p WHERE p.run_at <= moment AND p.limit_key IS NOT NULL
        RETURNING limit_arrival.limit_key
    ),
    later AS (
        INSERT INTO scheduled (run_at, job_id)
        SELECT p.run_at, p.id FROM placed AS p WHERE p.run_at > moment
    )
    SELECT
        EXISTS (SELECT FROM queued) OR EXISTS (SELECT FROM arrived),
        EXISTS (
            SELECT FROM arrived AS a
            WHERE NOT EXISTS (SELECT FROM limit_state AS s WHERE s.limit_key = a.limit_key))
    INTO any_due, any_named;
    IF any_named THEN
        PERFORM announce();
    ELSIF any_due THEN
        PERFORM ring();
    END IF;
END
$$;

-- Of these jobs those that stand in `blocked`, locked, and their rows in `job`. Whoever holds one for
-- longer than a settle takes (somebody's open transaction) is not waited for: it is left out.
CREATE OR REPLACE FUNCTION lock_blocked(ids bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
    SET lock_timeout = '500ms'
AS $$
DECLARE
    held bigint[];
BEGIN
    BEGIN
        held := ARRAY(SELECT b.job_id FROM blocked AS b WHERE b.job_id = ANY(ids) ORDER BY b.job_id FOR UPDATE);
        PERFORM FROM job AS j WHERE j.id = ANY(held) ORDER BY j.id FOR UPDATE;
        RETURN held;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        held := ARRAY(
            SELECT b.job_id FROM blocked AS b WHERE b.job_id = ANY(ids) ORDER BY b.job_id FOR UPDATE SKIP LOCKED);
        RETURN ARRAY(SELECT j.id FROM job AS j WHERE j.id = ANY(held) ORDER BY j.id FOR UPDATE SKIP LOCKED);
    END;
END
$$;

-- These jobs have succeeded: what comes after them waits for so many fewer, and goes if it waits for
-- none. In the transaction in which they succeed. A job succeeds once, and an edge is met once: whoever
-- comes second finds nothing to do. Returns how many children it has told.
CREATE OR REPLACE FUNCTION release_children(parents bigint[], most integer DEFAULT 1000) RETURNS integer
    LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    held bigint[];
    free bigint[];
    told integer := 0;
BEGIN
    -- Parent by parent, each with its limit: in the order of the children at once, the planner would walk
    -- over the children of everybody once some parent has many.
    held := ARRAY(
        SELECT DISTINCT e.child
        FROM unnest(parents) AS p (id)
        CROSS JOIN LATERAL (
            SELECT o.child
            FROM job_edge AS o
            CROSS JOIN LATERAL (SELECT FROM blocked AS b WHERE b.job_id = o.child LIMIT 1) AS b
            WHERE o.parent = p.id AND o.met_at IS NULL
            LIMIT most
        ) AS e
        LIMIT most);
    IF held = '{}' THEN
        RETURN 0;
    END IF;
    BEGIN
        held := lock_blocked(held);
        -- A statement of its own: it sees what those did for whom the locks waited.
        WITH met AS (
            UPDATE job_edge AS e
            SET met_at = clock_timestamp()
            WHERE e.parent = ANY(parents) AND e.child = ANY(held) AND e.met_at IS NULL
            RETURNING e.child
        ),
        fewer AS (
            UPDATE blocked AS b
            SET waits_for = b.waits_for - m.parents
            FROM (SELECT m.child, count(*)::integer AS parents FROM met AS m GROUP BY m.child) AS m
            WHERE b.job_id = m.child AND b.job_id = ANY(held)
            RETURNING b.job_id, b.waits_for
        )
        SELECT count(*), coalesce(array_agg(f.job_id ORDER BY f.job_id) FILTER (WHERE f.waits_for = 0), '{}')
        INTO told, free
        FROM fewer AS f;
        DELETE FROM blocked AS b WHERE b.job_id = ANY(free);
        PERFORM place_jobs(free);
    EXCEPTION WHEN OTHERS THEN
        -- What has succeeded has succeeded: the rest can wait for the sweep, which says what is wrong.
        told := 0;
    END;
    RETURN told;
END
$$;

-- These jobs are dead, cancelled or discarded: what was to be cancelled with them is, and what was to be
-- cancelled with that. In the transaction in which they end, as long as it is at most so many; returns
-- how many.
CREATE OR REPLACE FUNCTION cancel_children(parents bigint[], most integer DEFAULT 1000) RETURNS integer
    LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    level bigint[] := parents;
    held  bigint[];
    told  integer := 0;
BEGIN
    WHILE told < most LOOP
        held := ARRAY(
            SELECT DISTINCT e.child
            FROM unnest(level) AS p (id)
            CROSS JOIN LATERAL (
                SELECT o.child
                FROM job_edge AS o
                CROSS JOIN LATERAL (SELECT FROM blocked AS b WHERE b.job_id = o.child LIMIT 1) AS b
                WHERE o.parent = p.id AND o.met_at IS NULL AND o.on_dead = 'cancel'
                LIMIT most - told
            ) AS e
            LIMIT most - told);
        EXIT WHEN held = '{}';
        BEGIN
            held := lock_blocked(held);
            WITH freed AS (
                DELETE FROM blocked AS b WHERE b.job_id = ANY(held) RETURNING b.job_id
            ),
            gone AS (
                DELETE FROM job AS j WHERE j.id = ANY(ARRAY(SELECT f.job_id FROM freed AS f)) RETURNING j.*
            ),
            keys AS (
                UPDATE job_key AS k
                SET until = clock_timestamp() + make_interval(secs => k.ttl_seconds)
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
            )
            INSERT INTO history (
                id, type, queue, priority, key, subject, args, schema_version, max_attempts, attempt,
                crashes, run_at, created_at, finished_at, state, cancel_requested_at, progress,
                failure_class, last_error)
            SELECT
                g.id, g.type, g.queue, g.priority, g.key, g.subject, g.args, g.schema_version,
                g.max_attempts, g.attempt, g.crashes, g.run_at, g.created_at, now(), 'cancelled',
                g.cancel_requested_at, g.progress, 'dependency',
                format('job %s, which it comes after, did not succeed', (
                    SELECT min(e.parent)
                    FROM job_edge AS e
                    WHERE e.child = g.id AND e.parent = ANY(level) AND e.met_at IS NULL
                        AND e.on_dead = 'cancel'))
            FROM gone AS g;
        EXCEPTION WHEN OTHERS THEN
            RETURN told;    -- see release_children
        END;
        EXIT WHEN held = '{}';
        told := told + cardinality(held);
        level := held;
    END LOOP;
    RETURN told;
END
$$;

-- Of a call of `enqueue_many`: makes the edges of its new jobs and holds those that have to wait. `ids`
-- and `news` are what came of its items. A parent is an id, or {"item": n}: an earlier item of this call.
-- Whatever a new job comes after was there before it, so no job ever waits for itself, however far round.
CREATE OR REPLACE FUNCTION hold_steps(jobs jsonb, ids bigint[], news boolean[]) RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    edges  jsonb;
    wrong  record;
    free   bigint[];
    doomed bigint[];
BEGIN
    WITH born AS MATERIALIZED (
        SELECT DISTINCT n.id FROM unnest(ids, news) AS n (id, created) WHERE n.created
    ),
    wish AS MATERIALIZED (
        SELECT
            min(a.ord) AS ord,
            a.child,
            p.parent,
            bool_or(p.by_id AND n.id IS NOT NULL) AS too_early,
            min(a.on_dead) AS on_dead
        FROM (
            SELECT
                i.ord, ids[i.ord::integer] AS child, coalesce(i.item ->> 'on_dead', 'hold') AS on_dead,
                CASE jsonb_typeof(i.item -> 'after') WHEN 'array' THEN i.item -> 'after' ELSE '[]' END AS after
            FROM jsonb_array_elements(jobs) WITH ORDINALITY AS i (item, ord)
            WHERE news[i.ord::integer]
        ) AS a
        CROSS JOIN LATERAL (
            SELECT
                CASE jsonb_typeof(v.item)
                    WHEN 'object' THEN ids[(v.item ->> 'item')::integer]
                    ELSE v.item::numeric::bigint
                END AS parent,
                jsonb_typeof(v.item) = 'number' AS by_id
            FROM jsonb_array_elements(a.after) AS v (item)
        ) AS p
        LEFT JOIN born AS n ON n.id = p.parent
        GROUP BY a.child, p.parent
    )
    SELECT jsonb_agg(jsonb_build_object(
        'ord', w.ord, 'child', w.child, 'parent', w.parent, 'on_dead', w.on_dead,
        'met', h.state IS NOT DISTINCT FROM 'succeeded',
        'lost', d.job_id IS NOT NULL OR h.state <> 'succeeded',
        'why', CASE
            WHEN w.too_early OR (j.id IS NULL AND h.state IS NULL)
                THEN format('it comes after job %s, and there is no such job: one that has finished is '
                            'forgotten after history_keep', w.parent)
            WHEN h.state <> 'succeeded' AND w.on_dead = 'hold'
                THEN format('it comes after job %s, which was %s and will never succeed: leave that one '
                            'out, or say with on_dead that this job is cancelled as well', w.parent, h.state)
        END))
    INTO edges
    FROM wish AS w
    LEFT JOIN LATERAL (SELECT o.id FROM job AS o WHERE o.id = w.parent LIMIT 1) AS j ON true
    LEFT JOIN LATERAL (SELECT o.job_id FROM dead AS o WHERE o.job_id = w.parent LIMIT 1) AS d ON true
    LEFT JOIN LATERAL (
        SELECT o.state FROM history AS o WHERE j.id IS NULL AND o.id = w.parent LIMIT 1
    ) AS h ON true;

    SELECT e.ord, jobs -> (e.ord::integer - 1) ->> 'type' AS type, e.why
    INTO wrong
    FROM jsonb_to_recordset(edges) AS e (ord bigint, why text)
    WHERE e.why IS NOT NULL
    ORDER BY e.ord
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'job % of this call (type %) was refused: %', wrong.ord, wrong.type, wrong.why
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    INSERT INTO job_edge (child, parent, on_dead, met_at)
    SELECT e.child, e.parent, e.on_dead, CASE WHEN e.met THEN clock_timestamp() END
    FROM jsonb_to_recordset(edges) AS e (child bigint, parent bigint, on_dead text, met boolean);

    WITH waiting AS (
        SELECT e.child, count(*) FILTER (WHERE NOT e.met) AS parents
        FROM jsonb_to_recordset(edges) AS e (child bigint, met boolean)
        GROUP BY e.child
    ),
    held AS (
        INSERT INTO blocked (job_id, reason, waits_for)
        SELECT w.child, 'parents', w.parents FROM waiting AS w WHERE w.parents > 0
    )
    SELECT coalesce(array_agg(w.child ORDER BY w.child) FILTER (WHERE w.parents = 0), '{}')
    INTO free
    FROM waiting AS w;
    IF free <> '{}' THEN
        PERFORM place_jobs(free);
    END IF;

    doomed := ARRAY(
        SELECT DISTINCT e.parent
        FROM jsonb_to_recordset(edges) AS e (parent bigint, on_dead text, lost boolean)
        WHERE e.lost AND e.on_dead = 'cancel');
    IF doomed <> '{}' THEN
        PERFORM cancel_children(doomed);
    END IF;
END
$$;

-- What `ctx.enqueue` has collected, in the transaction in which its job succeeds. `steps` is an array as
-- `enqueue_many` takes it. A key that somebody else's open transaction has in hand is not waited for.
CREATE OR REPLACE FUNCTION enqueue_steps(parent bigint, steps jsonb, max_args_bytes integer) RETURNS integer
    LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
    SET lock_timeout = '200ms'
AS $$
DECLARE
    made bigint[];
BEGIN
    made := ARRAY(SELECT e.job_id FROM enqueue_many(steps, max_args_bytes) AS e WHERE e.created);
    INSERT INTO job_edge (child, parent, on_dead, met_at)
    SELECT m.child, enqueue_steps.parent, 'hold', clock_timestamp()
    FROM unnest(made) AS m (child)
    ON CONFLICT DO NOTHING;
    RETURN cardinality(made);
END
$$;

-- By the leader: children that nobody let go, because their own transaction was open when their parent
-- ended, because somebody held them, or because there were too many. Looks at `most` of those that are
-- blocked, from `since` on, and says up to which; NULL: those were the last.
CREATE OR REPLACE FUNCTION sweep_children(
    since bigint, most integer, OUT upto bigint, OUT released integer, OUT cancelled integer
)
    LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    looked_at integer;
    succeeded bigint[];
    lost      bigint[];
BEGIN
    WITH walked AS MATERIALIZED (
        SELECT b.job_id
        FROM blocked AS b
        WHERE b.job_id > since AND b.waits_for > 0
        ORDER BY b.job_id
        LIMIT most
    ),
    missed AS MATERIALIZED (
        SELECT DISTINCT e.parent, h.state IS NOT DISTINCT FROM 'succeeded' AS succeeded
        FROM walked AS w
        CROSS JOIN LATERAL (
            SELECT o.parent, o.on_dead FROM job_edge AS o WHERE o.child = w.job_id AND o.met_at IS NULL OFFSET 0
        ) AS e
        LEFT JOIN LATERAL (SELECT o.id FROM job AS o WHERE o.id = e.parent LIMIT 1) AS j ON true
        LEFT JOIN LATERAL (SELECT o.job_id FROM dead AS o WHERE o.job_id = e.parent LIMIT 1) AS d ON true
        LEFT JOIN LATERAL (
            SELECT o.state FROM history AS o WHERE j.id IS NULL AND o.id = e.parent LIMIT 1
        ) AS h ON true
        WHERE h.state = 'succeeded'
            OR (e.on_dead = 'cancel' AND (j.id IS NULL OR d.job_id IS NOT NULL))
    )
    SELECT
        (SELECT max(w.job_id) FROM walked AS w),
        (SELECT count(*) FROM walked),
        ARRAY(SELECT m.parent FROM missed AS m WHERE m.succeeded),
        ARRAY(SELECT m.parent FROM missed AS m WHERE NOT m.succeeded)
    INTO upto, looked_at, succeeded, lost;
    released := CASE WHEN succeeded = '{}' THEN 0 ELSE release_children(succeeded, most) END;
    cancelled := CASE WHEN lost = '{}' THEN 0 ELSE cancel_children(lost, most) END;
    IF looked_at < most THEN
        upto := NULL;
    END IF;
END
$$;
