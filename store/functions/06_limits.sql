-- Limits: who is let in, and when.
--
-- A place is given in one function only, `admit`, under the lock of its key, and counted by a statement
-- that begins after the lock was got: what others have given is seen, and nobody gives at the same time.
-- Nothing here waits for a lock: a key that somebody has in hand gets a note, and whoever looks next
-- deals with it. So no ending of a job ever waits for a stranger's transaction.

-- Which rule counts for a key: its own, or the longest pattern that fits.
CREATE OR REPLACE FUNCTION limit_rule_for(key text) RETURNS limit_rule
    LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT r
    FROM limit_rule AS r
    WHERE r.limit_key = key
        OR (right(r.limit_key, 1) = '*' AND starts_with(key, left(r.limit_key, -1)))
    ORDER BY r.limit_key = key DESC, length(r.limit_key) DESC
    LIMIT 1;
END;

-- Lets in as many of the jobs that wait for these keys as there are places and moments for. Returns how
-- many. A job whose moment is near is given it now, and stands in `scheduled` till then: nobody polls
-- for it. Two things would let more start in a second than a rate allows, whatever was planned:
--   * What stands in `ready` and nobody takes (slots are busy, the queue is paused) will start in one go.
--     It counts as if it took its moments now, so there is never more of it than a burst and what
--     some tenths of a second allow.
--   * A job that may start at once still has to be claimed. Whoever has to wait is therefore planned
--     `slack` after its moment, so that who went first cannot be caught up with.
CREATE OR REPLACE FUNCTION admit(keys text[]) RETURNS integer
    LANGUAGE plpgsql SET search_path FROM CURRENT
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    most    constant integer := 1000;       -- of one key, in one go
    ahead   constant double precision := 0.2;   -- seconds
    slack   constant interval := '0.1 s';
    moment  timestamptz;
    mine    text[];
    left_out text[];
    moved   integer;
    due     boolean;
BEGIN
    INSERT INTO limit_state (limit_key, rule, max_running, per_seconds, burst, brake)
    SELECT n.key, r.limit_key, r.max_running, r.per_seconds, coalesce(r.burst, 1), coalesce(r.brake, false)
    FROM (SELECT DISTINCT k.key FROM unnest(keys) AS k (key) ORDER BY 1) AS n
    CROSS JOIN LATERAL limit_rule_for(n.key) AS r
    WHERE NOT EXISTS (SELECT FROM limit_state AS s WHERE s.limit_key = n.key)
    ON CONFLICT DO NOTHING;

    SELECT array_agg(l.limit_key)
    INTO mine
    FROM (
        SELECT s.limit_key
        FROM limit_state AS s
        WHERE s.limit_key = ANY(keys)
        ORDER BY s.limit_key
        FOR UPDATE SKIP LOCKED
    ) AS l;
    left_out := ARRAY(SELECT DISTINCT k.key FROM unnest(keys) AS k (key) WHERE k.key <> ALL(coalesce(mine, '{}')));

    moment := clock_timestamp();
    WITH key AS MATERIALIZED (
        SELECT
            s.limit_key, s.per_seconds, s.burst, s.held_until, paced.base,
            -- Those before it may not have begun yet.
            s.next_start + slack > moment + s.burst * paced.step AS follows,
            CASE
                WHEN s.held_until > moment THEN 0
                ELSE least(
                    most,
                    least(s.max_running, floor(s.braked_to)::integer) - held.n,
                    -- How many of the moments that the rate gives lie before the end of what is planned.
                    floor((ahead - extract(epoch FROM paced.base - moment)::double precision)
                          / s.per_seconds)::bigint + s.burst)
            END AS room
        FROM limit_state AS s
        CROSS JOIN LATERAL (
            SELECT EXISTS (SELECT FROM blocked AS b WHERE b.limit_key = s.limit_key) AS somebody
        ) AS waits
        CROSS JOIN LATERAL (
            SELECT count(*)::integer AS n
            FROM (
                SELECT FROM place AS p
                -- There may be very many, and nobody needs the number if nobody waits.
                WHERE waits.somebody AND p.limit_key = s.limit_key
                LIMIT coalesce(s.max_running, 0)
            ) AS c
        ) AS held
        CROSS JOIN LATERAL (
            SELECT count(*)::integer AS n
            FROM (
                SELECT
                FROM place AS p
                CROSS JOIN LATERAL (SELECT FROM ready AS o WHERE o.job_id = p.job_id LIMIT 1) AS r
                WHERE p.limit_key = s.limit_key AND s.per_seconds IS NOT NULL
                LIMIT most
            ) AS c
        ) AS untaken
        CROSS JOIN LATERAL (
            SELECT
                make_interval(secs => s.per_seconds) AS step,
                greatest(s.next_start, moment + make_interval(secs => untaken.n * s.per_seconds)) AS base
        ) AS paced
        WHERE s.limit_key = ANY(mine)
    ),
    next AS MATERIALIZED (
        SELECT
            k.limit_key, k.base, k.per_seconds, w.job_id, w.priority, w.nth, w.seq,
            CASE WHEN e.earliest > moment OR k.follows
                THEN greatest(e.earliest, moment) + slack
                ELSE e.earliest
            END AS start_at
        FROM key AS k
        CROSS JOIN LATERAL (
            SELECT o.*, row_number() OVER (ORDER BY o.priority DESC, o.seq) AS nth
            FROM (
                SELECT b.job_id, b.priority, b.seq
                FROM blocked AS b
                WHERE b.limit_key = k.limit_key
                ORDER BY b.priority DESC, b.seq
                LIMIT greatest(k.room, 0)
                FOR UPDATE SKIP LOCKED
            ) AS o
        ) AS w
        CROSS JOIN LATERAL (
            SELECT k.base + make_interval(secs => (w.nth - k.burst) * k.per_seconds) AS earliest
        ) AS e
    ),
    gone AS (
        DELETE FROM blocked AS b WHERE b.job_id = ANY(ARRAY(SELECT n.job_id FROM next AS n))
    ),
    placed AS (
        INSERT INTO place (job_id, limit_key) SELECT n.job_id, n.limit_key FROM next AS n
    ),
    queued AS (
        INSERT INTO ready (queue, priority, job_id)
        SELECT j.queue, n.priority, n.job_id
        FROM next AS n
        CROSS JOIN LATERAL (SELECT o.queue FROM job AS o WHERE o.id = n.job_id LIMIT 1) AS j
        WHERE n.start_at IS NULL OR n.start_at <= moment
        ORDER BY n.priority DESC, n.seq
        RETURNING job_id
    ),
    planned AS (
        INSERT INTO scheduled (run_at, job_id)
        SELECT n.start_at, n.job_id FROM next AS n WHERE n.start_at > moment
    ),
    taken AS MATERIALIZED (
        SELECT n.limit_key, count(*)::integer AS n FROM next AS n GROUP BY n.limit_key
    ),
    noted AS (
        UPDATE limit_state AS s
        SET next_start = CASE
                WHEN t.n > 0 OR k.base > moment
                    THEN k.base + make_interval(secs => coalesce(t.n, 0) * k.per_seconds)
                ELSE s.next_start
            END,
            admit_at = CASE
                WHEN k.held_until > moment THEN k.held_until
                WHEN k.per_seconds IS NOT NULL AND coalesce(t.n, 0) = greatest(k.room, 0)
                    -- All that was planned is given: some may wait for what comes after it.
                    THEN greatest(
                        moment + make_interval(secs => ahead / 2),
                        k.base + make_interval(secs => (coalesce(t.n, 0) + 1 - k.burst) * k.per_seconds - ahead / 2))
            END,
            used_at = moment
        FROM key AS k
        LEFT JOIN taken AS t ON t.limit_key = k.limit_key
        WHERE s.limit_key = k.limit_key
            AND (k.per_seconds IS NOT NULL OR s.admit_at IS NOT NULL OR k.held_until > moment
                 OR s.used_at < moment - interval '5 minutes')
    )
    SELECT
        (SELECT count(*) FROM next),
        EXISTS (SELECT FROM queued),
        left_out || ARRAY(SELECT t.limit_key FROM taken AS t WHERE t.n = most)
    INTO moved, due, left_out;

    IF cardinality(left_out) > 0 THEN
        INSERT INTO limit_arrival (limit_key) SELECT k.key FROM unnest(left_out) AS k (key);
    END IF;
    IF due THEN
        PERFORM ring();
    END IF;
    RETURN moved;
END
$$;

-- Deals with the notes that have been left, and with the keys whose time has come. Returns how many jobs
-- were let in, and in how many seconds there is something to do again (NULL: when somebody rings).
CREATE OR REPLACE FUNCTION admit_arrivals(OUT moved integer, OUT next_in double precision)
    LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off
AS $$
DECLARE
    again constant double precision := 0.1;     -- seconds
    keys  text[];
    held  text[];
    until timestamptz[];
BEGIN
    WITH note AS MATERIALIZED (
        SELECT a.ctid AS at FROM limit_arrival AS a LIMIT 1000 FOR UPDATE SKIP LOCKED
    ),
    read AS (
        DELETE FROM limit_arrival AS a
        WHERE a.ctid = ANY(ARRAY(SELECT n.at FROM note AS n))
        RETURNING a.limit_key, a.held_until
    )
    SELECT array_agg(DISTINCT u.limit_key), array_agg(u.limit_key) FILTER (WHERE u.held_until IS NOT NULL),
           array_agg(u.held_until) FILTER (WHERE u.held_until IS NOT NULL)
    INTO keys, held, until
    FROM (
        SELECT r.limit_key, r.held_until FROM read AS r
        UNION ALL
        (SELECT s.limit_key, NULL FROM limit_state AS s WHERE s.admit_at <= clock_timestamp() LIMIT 1000)
    ) AS u;
    PERFORM hold_limit(h.key, h.until) FROM unnest(held, until) AS h (key, until);
    moved := CASE WHEN keys IS NULL THEN 0 ELSE admit(keys) END;
    SELECT greatest(0, extract(epoch FROM s.admit_at - clock_timestamp())::double precision)
    INTO next_in
    FROM limit_state AS s
    WHERE s.admit_at IS NOT NULL
    ORDER BY s.admit_at
    LIMIT 1;
    -- What somebody has locked, perhaps for long, or what was too much for one go. Not by a ring: everybody
    -- would come running for as long as it is locked.
    IF EXISTS (SELECT FROM limit_arrival) THEN
        next_in := least(coalesce(next_in, again), again);
    END IF;
END
$$;

-- Gives back the places of these jobs, for those who end jobs in a transaction that may last: who waits
-- is let in by whoever looks next, once it has committed.
CREATE OR REPLACE FUNCTION leave_places(jobs bigint[]) RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    WITH freed AS (
        DELETE FROM place AS p WHERE p.job_id = ANY(jobs) RETURNING p.limit_key
    )
    INSERT INTO limit_arrival (limit_key) SELECT DISTINCT f.limit_key FROM freed AS f;
    IF FOUND THEN
        PERFORM ring();
    END IF;
END
$$;

-- Jobs have ended that held places of these keys: so many well, so many badly. `hold`: for so many seconds
-- nobody of that key may start (NULL: nothing of the kind). Then lets in whoever is next.
CREATE OR REPLACE FUNCTION settle_places(
    keys text[], good integer[], bad integer[], hold double precision[]
) RETURNS integer
    LANGUAGE plpgsql SET search_path FROM CURRENT
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    moved integer;
BEGIN
    PERFORM hold_limit(t.key, clock_timestamp() + make_interval(secs => least(t.hold, 86400)))
    FROM unnest(keys, hold) AS t (key, hold)
    WHERE t.hold IS NOT NULL;
    PERFORM brake_limits(keys, good, bad);
    moved := admit(keys);
    IF EXISTS (SELECT FROM limit_arrival) THEN
        PERFORM ring();     -- somebody else has to look: who settles does not come back for it
    END IF;
    RETURN moved;
END
$$;

-- Nobody of this key starts before that moment.
CREATE OR REPLACE FUNCTION hold_limit(key text, until timestamptz) RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE limit_state AS s
    SET held_until = greatest(s.held_until, until)
    WHERE s.ctid = (
        SELECT o.ctid FROM limit_state AS o WHERE o.limit_key = key FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        INSERT INTO limit_arrival (limit_key, held_until) VALUES (key, until);
    END IF;
END
$$;

-- The brake: places are taken away while the jobs of a key end badly, and come back one at a time. What
-- TCP does with its window (additive increase, multiplicative decrease; Chiu and Jain, 1989): half of
-- them once in ten seconds, if more than three in ten endings of about the last ten seconds were bad
-- and there were five; and, while fewer than one in ten are, about one more for each round of what is
-- left. One place always stays, as a probe. A key that is in somebody's hands is not judged this time.
CREATE OR REPLACE FUNCTION brake_limits(keys text[], good integer[], bad integer[]) RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    memory   constant double precision := 10;   -- seconds
    moment   constant timestamptz := clock_timestamp();
    verdict  record;
BEGIN
    FOR verdict IN
        SELECT
            s.limit_key, s.max_running, s.braked_to, s.braked_at, d.good, d.bad, t.good AS fresh,
            d.bad > 0.3 * (d.good + d.bad) AND d.good + d.bad >= 5 AS fails,
            d.bad < 0.1 * (d.good + d.bad) AS works
        FROM unnest(keys, good, bad) AS t (key, good, bad)
        CROSS JOIN LATERAL (
            SELECT o.*
            FROM limit_state AS o
            WHERE o.limit_key = t.key AND o.brake
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS s
        CROSS JOIN LATERAL (
            SELECT exp(-least(extract(epoch FROM moment - coalesce(s.judged_at, moment)), 1000) / memory) AS left
        ) AS f
        CROSS JOIN LATERAL (
            SELECT s.good * f.left + t.good AS good, s.bad * f.left + t.bad AS bad
        ) AS d
    LOOP
        UPDATE limit_state AS s
        SET good = verdict.good, bad = verdict.bad, judged_at = moment,
            braked_at = CASE
                WHEN verdict.fails AND coalesce(verdict.braked_at < moment - make_interval(secs => memory), true)
                    THEN moment
                ELSE s.braked_at
            END,
            braked_to = CASE
                WHEN verdict.fails AND coalesce(verdict.braked_at < moment - make_interval(secs => memory), true)
                    THEN greatest(1, least(verdict.braked_to, verdict.max_running) / 2)
                WHEN verdict.fails THEN s.braked_to
                WHEN verdict.works AND verdict.braked_to + verdict.fresh / verdict.braked_to >= verdict.max_running
                    THEN NULL
                WHEN verdict.works THEN verdict.braked_to + verdict.fresh / verdict.braked_to
                ELSE s.braked_to
            END
        WHERE s.limit_key = verdict.limit_key;
    END LOOP;
END
$$;

-- For operators -------------------------------------------------------------------------------------

-- Sets what a key, or a pattern, allows; NULL for what is not limited. Counts at once: who holds a place
-- that there is no more keeps it until its attempt has ended.
CREATE OR REPLACE FUNCTION set_limit(
    key         text,
    max_running integer DEFAULT NULL,
    per_seconds double precision DEFAULT NULL,
    burst       integer DEFAULT NULL,
    brake       boolean DEFAULT NULL,
    actor       text DEFAULT NULL,
    reason      text DEFAULT NULL
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
    IF strpos(left(key, -1), '*') > 0 THEN
        RAISE 'the limit % has a * before its end: a pattern is a beginning and one *, tenant:*', key
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF max_running IS NULL AND per_seconds IS NULL THEN
        RAISE 'the limit % limits nothing: say max_running, per_seconds or both', key
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO limit_rule AS r (limit_key, max_running, per_seconds, burst, brake, changed_by, reason)
    VALUES (key, max_running, per_seconds, coalesce(burst, 1), coalesce(brake, false), actor, reason)
    ON CONFLICT (limit_key) DO UPDATE SET
        max_running = excluded.max_running, per_seconds = excluded.per_seconds,
        burst = excluded.burst, brake = excluded.brake, changed_at = now(),
        changed_by = excluded.changed_by, reason = excluded.reason;
    INSERT INTO audit (actor, action, target, count, reason)
    VALUES (coalesce(actor, session_user), 'set limit', jsonb_strip_nulls(jsonb_build_object(
        'limit', key, 'max_running', max_running, 'per_seconds', per_seconds, 'burst', burst,
        'brake', brake)), 1, reason);
    PERFORM apply_limit_rule(key);
END
$$;

-- From now on the rule does not exist. False if it did not before.
CREATE OR REPLACE FUNCTION remove_limit(key text, actor text DEFAULT NULL, reason text DEFAULT NULL)
    RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM limit_rule AS r WHERE r.limit_key = key;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO audit (actor, action, target, count, reason)
    VALUES (coalesce(actor, session_user), 'remove limit', jsonb_build_object('limit', key), 1, reason);
    PERFORM apply_limit_rule(key);
    RETURN true;
END
$$;

-- Every key that this rule stands for, or stood for, asks again which rule counts.
CREATE OR REPLACE FUNCTION apply_limit_rule(changed text) RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    WITH concerned AS MATERIALIZED (
        SELECT s.limit_key
        FROM limit_state AS s
        WHERE s.rule = changed OR s.limit_key = changed
            OR (right(changed, 1) = '*' AND starts_with(s.limit_key, left(changed, -1)))
        ORDER BY s.limit_key
        FOR UPDATE
    ),
    applied AS (
        UPDATE limit_state AS s
        SET rule = r.limit_key, max_running = r.max_running, per_seconds = r.per_seconds,
            burst = coalesce(r.burst, 1), brake = coalesce(r.brake, false),
            -- What was planned by another rate is not owed.
            next_start = CASE WHEN s.per_seconds IS DISTINCT FROM r.per_seconds THEN NULL ELSE s.next_start END,
            braked_to = CASE WHEN r.brake THEN least(s.braked_to, r.max_running) END,
            admit_at = clock_timestamp()
        FROM concerned AS c
        CROSS JOIN LATERAL limit_rule_for(c.limit_key) AS r
        WHERE s.limit_key = c.limit_key
        RETURNING s.limit_key
    )
    INSERT INTO limit_arrival (limit_key) SELECT a.limit_key FROM applied AS a;
    PERFORM announce();
END
$$;

-- Takes back what was laid upon a key: the brake, and the wait that somebody was told. False if it is not
-- known.
CREATE OR REPLACE FUNCTION release_limit(key text, actor text DEFAULT NULL, reason text DEFAULT NULL)
    RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE limit_state AS s
    SET braked_to = NULL, braked_at = NULL, good = 0, bad = 0, held_until = NULL,
        admit_at = clock_timestamp()
    WHERE s.limit_key = key;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO audit (actor, action, target, count, reason)
    VALUES (coalesce(actor, session_user), 'release limit', jsonb_build_object('limit', key), 1, reason);
    INSERT INTO limit_arrival (limit_key) VALUES (key);
    PERFORM announce();
    RETURN true;
END
$$;

-- Keeping house: what no path should leave behind, whatever died; and who waits although there is room.
CREATE OR REPLACE FUNCTION mend_limits(OUT places integer, OUT moved integer)
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    -- A job moves from place to place within one transaction, so that any one snapshot sees it in
    -- one of them.
    WITH stray AS MATERIALIZED (
        SELECT p.ctid AS at
        FROM place AS p
        WHERE NOT EXISTS (SELECT FROM ready AS r WHERE r.job_id = p.job_id)
            AND NOT EXISTS (SELECT FROM claim AS c WHERE c.job_id = p.job_id)
            AND NOT EXISTS (SELECT FROM scheduled AS s WHERE s.job_id = p.job_id)
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ),
    gone AS (
        DELETE FROM place AS p
        WHERE p.ctid = ANY(ARRAY(SELECT s.at FROM stray AS s))
        RETURNING p.limit_key
    )
    SELECT count(*) INTO places FROM gone;

    -- Every key that somebody waits for, by jumps through the index.
    moved := coalesce(admit(ARRAY(
        WITH RECURSIVE waiting AS (
            (SELECT b.limit_key FROM blocked AS b WHERE b.limit_key IS NOT NULL ORDER BY b.limit_key LIMIT 1)
            UNION ALL
            SELECT n.limit_key
            FROM waiting AS w
            CROSS JOIN LATERAL (
                SELECT b.limit_key
                FROM blocked AS b
                WHERE b.limit_key > w.limit_key
                ORDER BY b.limit_key
                LIMIT 1
            ) AS n
        )
        SELECT w.limit_key FROM waiting AS w LIMIT 10000
    )), 0);

    DELETE FROM limit_state AS s
    WHERE s.ctid = ANY(ARRAY(
        SELECT o.ctid
        FROM limit_state AS o
        WHERE o.used_at < now() - interval '1 hour'
            AND coalesce(o.next_start, '-infinity') < now() AND coalesce(o.held_until, '-infinity') < now()
            AND NOT EXISTS (SELECT FROM place AS p WHERE p.limit_key = o.limit_key)
            AND NOT EXISTS (SELECT FROM blocked AS b WHERE b.limit_key = o.limit_key)
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ));
END
$$;

-- What each limit is, and how it stands.
CREATE OR REPLACE VIEW limits AS
SELECT
    s.limit_key, s.rule, s.max_running, 1 / s.per_seconds AS rate, s.burst, s.brake,
    (SELECT count(*) FROM place AS p WHERE p.limit_key = s.limit_key) AS held,
    (SELECT count(*) FROM blocked AS b WHERE b.limit_key = s.limit_key) AS waiting,
    (
        SELECT b.blocked_at
        FROM blocked AS b
        WHERE b.limit_key = s.limit_key
        ORDER BY b.priority DESC, b.seq
        LIMIT 1
    ) AS waiting_since,
    floor(s.braked_to)::integer AS braked_to,
    CASE WHEN s.held_until > now() THEN s.held_until END AS held_until,
    s.admit_at
FROM limit_state AS s
UNION ALL
SELECT r.limit_key, r.limit_key, r.max_running, 1 / r.per_seconds, r.burst, r.brake, 0, 0, NULL, NULL, NULL, NULL
FROM limit_rule AS r
WHERE NOT EXISTS (SELECT FROM limit_state AS s WHERE s.limit_key = r.limit_key);
