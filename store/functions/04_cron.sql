-- Crons: declared by hosts, made one by the leader, fired once.

-- What a host declares from now on; whatever else it declared, it does no more.
CREATE OR REPLACE FUNCTION declare_crons(session bigint, crons jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    moment  constant timestamptz := clock_timestamp();
    dropped integer;
    changed integer;
BEGIN
    UPDATE cron_declaration AS d
    SET gone_at = moment
    WHERE d.session_id = session AND d.gone_at IS NULL
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(crons) AS c (item) WHERE c.item ->> 'name' = d.name);
    GET DIAGNOSTICS dropped = ROW_COUNT;
    INSERT INTO cron_declaration AS d (session_id, name, definition, since)
    SELECT
        session,
        c.item ->> 'name',
        c.item - 'name',
        coalesce(
            (SELECT min(o.since) FROM cron_declaration AS o
             WHERE o.name = c.item ->> 'name' AND o.definition = c.item - 'name'),
            moment)
    FROM jsonb_array_elements(crons) AS c (item)
    ORDER BY 2
    ON CONFLICT (session_id, name) DO UPDATE
    SET definition = excluded.definition, since = excluded.since, gone_at = NULL
    WHERE d.definition <> excluded.definition OR d.gone_at IS NOT NULL;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF dropped + changed > 0 THEN
        PERFORM announce();
    END IF;
END
$$;

-- Makes one definition of what all hosts declare: of those that live hosts declare, the one that was
-- declared first the last. A host that is started again with old code therefore changes nothing, and
-- a deploy, or its way back, changes an entry once. By the leader; two at once come to the same.
CREATE OR REPLACE FUNCTION reconcile_crons(retire_after interval, forget_after interval) RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    moment constant timestamptz := clock_timestamp();
BEGIN
    UPDATE cron_declaration AS d
    SET gone_at = moment
    WHERE d.gone_at IS NULL
        AND NOT EXISTS (SELECT FROM session AS s WHERE s.id = d.session_id AND NOT s.dead);

    INSERT INTO cron_entry AS e (name, definition, changed_at, judged_until)
    SELECT DISTINCT ON (d.name) d.name, d.definition, moment, moment
    FROM cron_declaration AS d
    WHERE d.gone_at IS NULL
    ORDER BY d.name, d.since DESC, d.definition::text
    ON CONFLICT (name) DO UPDATE SET
        definition = excluded.definition,
        changed_at = CASE WHEN e.definition = excluded.definition THEN e.changed_at ELSE moment END,
        retired_at = NULL,
        -- Another schedule counts from now on: what it would have meant before was never planned.
        judged_until = CASE
            WHEN e.definition ->> 'schedule' = excluded.definition ->> 'schedule'
                AND e.definition ->> 'tz' = excluded.definition ->> 'tz' THEN e.judged_until
            ELSE greatest(e.judged_until, moment)
        END,
        next_at = NULL
    WHERE (e.definition <> excluded.definition OR e.retired_at IS NOT NULL)
        AND e.definition ->> 'origin' <> 'database';

    UPDATE cron_entry AS e
    SET retired_at = moment, next_at = NULL
    WHERE e.retired_at IS NULL AND e.definition ->> 'origin' <> 'database'
        AND NOT EXISTS (
            SELECT FROM cron_declaration AS d
            WHERE d.name = e.name AND (d.gone_at IS NULL OR d.gone_at > moment - retire_after));

    DELETE FROM cron_declaration AS d WHERE d.gone_at < moment - greatest(retire_after, '1 day');
    -- What an operator has disabled stays, or a name that comes back would be on again.
    DELETE FROM cron_entry AS e WHERE e.retired_at < moment - forget_after AND e.disabled_at IS NULL;
END
$$;

-- Fires what the leader found planned between `judged_until` and `as_of`. `moments` are the planned
-- times that fire, in order, `too_late` the last one that does not; `missed` is how many came to
-- nothing before the first of them. One transaction: the row of a planned time, and its job, or
-- neither. Nothing here asks whether somebody else leads as well: who inserts the row fires.
CREATE OR REPLACE FUNCTION fire_cron(
    cron        text,
    seen        jsonb,          -- the definition that this was worked out from
    as_of       timestamptz,
    moments     timestamptz[],
    too_late    timestamptz,
    missed      integer,
    then_at     timestamptz
) RETURNS TABLE (scheduled_for timestamptz, result text, job_id bigint, lag double precision)
    LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    e      record;
    moment timestamptz;
    before integer := missed;
    what   text;
    job    bigint;
BEGIN
    SELECT * INTO e
    FROM cron_entry AS c
    WHERE c.name = cron AND c.definition = seen AND c.disabled_at IS NULL AND c.retired_at IS NULL;
    IF NOT FOUND THEN
        RETURN;     -- it has changed meanwhile: look again
    END IF;
    IF too_late > e.judged_until AND cardinality(moments) = 0 THEN
        INSERT INTO cron_fire (name, scheduled_for, result, missed)
        VALUES (cron, too_late, 'missed', before - 1)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN QUERY SELECT too_late, 'missed', NULL::bigint, NULL::double precision;
        END IF;
    END IF;
    FOREACH moment IN ARRAY moments LOOP
        -- A leader that was asleep since it looked may be behind one that was not.
        CONTINUE WHEN moment <= e.judged_until;
        what := CASE WHEN e.definition ->> 'overlap' = 'skip' AND cron_is_open(cron)
                THEN 'skipped' ELSE 'fired' END;
        INSERT INTO cron_fire (name, scheduled_for, result, missed)
        VALUES (cron, moment, what, before)
        ON CONFLICT DO NOTHING;
        CONTINUE WHEN NOT FOUND;
        before := 0;
        job := NULL;
        IF what = 'fired' THEN
            job := cron_job(cron, e.definition, moment);
            UPDATE cron_fire AS f SET job_id = job WHERE f.name = cron AND f.scheduled_for = moment;
        END IF;
        RETURN QUERY SELECT moment, what, job,
            extract(epoch FROM clock_timestamp() - moment)::double precision;
    END LOOP;
    UPDATE cron_entry AS c
    SET judged_until = as_of, next_at = then_at
    WHERE c.name = cron AND c.definition = seen AND c.judged_until < as_of;
END
$$;

-- Enqueues the job of one firing. Its jitter is drawn from the firing itself: whoever fires it, the
-- job is due at the same moment.
CREATE OR REPLACE FUNCTION cron_job(cron text, definition jsonb, moment timestamptz) RETURNS bigint
    LANGUAGE sql SET search_path FROM CURRENT
    RETURN (
        SELECT e.job_id
        FROM enqueue_many(jsonb_build_array(jsonb_build_object(
            'type', definition ->> 'type',
            'args', definition -> 'args',
            'schema_version', definition -> 'schema_version',
            'run_at', moment + make_interval(secs =>
                (definition ->> 'jitter_seconds')::double precision
                * (('x' || left(md5(cron || ' ' || extract(epoch FROM moment)::bigint), 8))::bit(32)::bigint
                   / 4294967296.0))))) AS e
    );

-- Whether a job of an earlier firing is still to end. A dead one has ended as far as this goes: a
-- dead letter must not stop a cron until somebody has read it.
CREATE OR REPLACE FUNCTION cron_is_open(cron text) RETURNS boolean
    LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT EXISTS (
        SELECT
        FROM (
            SELECT f.job_id
            FROM cron_fire AS f
            WHERE f.name = cron AND f.job_id IS NOT NULL
            ORDER BY f.scheduled_for DESC
            LIMIT 20
        ) AS last
        JOIN job AS j ON j.id = last.job_id
        WHERE NOT EXISTS (SELECT FROM dead AS d WHERE d.job_id = j.id));
END;

-- One more, now, whatever the schedule says and whether it is enabled or not.
CREATE OR REPLACE FUNCTION run_cron(cron text, OUT job_id bigint, OUT scheduled_for timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    definition jsonb := (SELECT c.definition FROM cron_entry AS c WHERE c.name = cron);
BEGIN
    IF definition IS NULL THEN
        RETURN;
    END IF;
    -- Never a planned time, which is a whole second.
    scheduled_for := date_trunc('milliseconds', clock_timestamp()) + interval '1 microsecond';
    WHILE EXISTS (SELECT FROM cron_fire AS f WHERE f.name = cron AND f.scheduled_for = run_cron.scheduled_for) LOOP
        scheduled_for := scheduled_for + interval '1 microsecond';
    END LOOP;
    job_id := cron_job(cron, jsonb_set(definition, '{jitter_seconds}', '0'), scheduled_for);
    INSERT INTO cron_fire (name, scheduled_for, result, job_id)
    VALUES (cron, scheduled_for, 'run_now', job_id);
END
$$;

-- For people and for SQL: each cron with what it is and how it stands.
CREATE OR REPLACE VIEW cron AS
SELECT
    e.name,
    CASE
        WHEN e.retired_at IS NOT NULL THEN 'retired'
        WHEN e.disabled_at IS NOT NULL THEN 'disabled'
        ELSE 'enabled'
    END AS state,
    e.definition ->> 'schedule' AS schedule,
    e.definition ->> 'tz' AS tz,
    e.definition ->> 'type' AS type,
    e.definition -> 'args' AS args,
    e.definition ->> 'misfire' AS misfire,
    (e.definition ->> 'misfire_limit')::integer AS misfire_limit,
    (e.definition ->> 'jitter_seconds')::double precision AS jitter_seconds,
    e.definition ->> 'overlap' AS overlap,
    e.definition ->> 'origin' AS origin,
    CASE WHEN e.disabled_at IS NULL AND e.retired_at IS NULL THEN e.next_at END AS next_at,
    f.scheduled_for AS last_scheduled_for,
    f.fired_at AS last_fired_at,
    f.result AS last_result,
    f.job_id AS last_job_id,
    extract(epoch FROM f.fired_at - f.scheduled_for)::double precision AS last_lag_seconds,
    -- How long it has been due without anybody having fired it.
    CASE WHEN e.disabled_at IS NULL AND e.retired_at IS NULL
        THEN greatest(0, extract(epoch FROM clock_timestamp() - e.next_at))::double precision
    END AS overdue_seconds,
    e.changed_at, e.disabled_at, e.disabled_by, e.disabled_reason, e.retired_at, e.judged_until
FROM cron_entry AS e
LEFT JOIN LATERAL (
    SELECT * FROM cron_fire AS f WHERE f.name = e.name ORDER BY f.scheduled_for DESC LIMIT 1
) AS f ON true;
