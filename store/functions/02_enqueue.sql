-- The only way in.

-- Every job enters here, from whatever language. `jobs` is an array of objects with the fields
-- type, args, key, subject, queue, priority, delay_seconds, run_at, timeout_seconds, max_attempts,
-- schema_version, key_ttl_seconds ('forever' is -1), limit_key, after, on_dead, traceparent. One row back for each, in
-- order: the job's id, and whether it is new (an existing key gives the first job's id, and nothing of that job
-- changes). `after` is an array: ids of jobs, or {"item": n} for the n-th of this call, which comes before
-- it; `on_dead` is 'hold' or 'cancel'. `max_args_bytes` is the most that one job's args may have; the
-- setting jobctl.max_args_bytes, then 64 KiB, if it is not given.
CREATE OR REPLACE FUNCTION enqueue_many(jobs jsonb, max_args_bytes integer DEFAULT NULL)
    RETURNS TABLE (ord bigint, job_id bigint, created boolean)
    -- A session plans this once, perhaps while the tables are empty: with `LIMIT 1` below and no
    -- sequential scans the plan stays right when they hold millions.
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    known       constant text[] := '{type,args,key,subject,queue,priority,delay_seconds,run_at,timeout_seconds,max_attempts,schema_version,key_ttl_seconds,limit_key,after,on_dead,traceparent}';
    -- A setting that a transaction has set and ended is '', not NULL.
    limit_bytes constant integer := coalesce(
        max_args_bytes, nullif(current_setting('jobctl.max_args_bytes', true), '')::integer, 65536);
    moment      constant timestamptz := clock_timestamp();
    most_parents constant integer := 1000;
    wrong       record;
    ids         bigint[];
    news        boolean[];
    own         boolean[];      -- those, and what a call within this one has made
    any_due     boolean;
    any_named   boolean;
    any_after   boolean;
BEGIN
    IF jsonb_typeof(jobs) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'jobs must be a JSON array of objects' USING ERRCODE = 'invalid_parameter_value';
    END IF;

    SELECT a.ord, r.type, w.why
    INTO wrong
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS a (item, ord)
    CROSS JOIN LATERAL jsonb_to_record(CASE jsonb_typeof(a.item) WHEN 'object' THEN a.item ELSE '{}' END) AS r (
        type text, args jsonb, key text, subject text, queue text, priority integer,
        delay_seconds double precision, run_at timestamptz, timeout_seconds double precision,
        max_attempts integer, schema_version integer, key_ttl_seconds double precision,
            limit_key text, after jsonb, on_dead text, traceparent text)
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN jsonb_typeof(a.item) <> 'object' THEN 'it must be a JSON object, not ' || jsonb_typeof(a.item)
            WHEN a.item - known <> '{}'
                THEN format('it has a field that jobctl does not know, %s',
                            (SELECT min(f.name) FROM jsonb_object_keys(a.item - known) AS f (name)))
            WHEN r.type IS NULL OR r.type = '' OR length(r.type) > 200
                THEN 'its type must be a name of 1 to 200 characters'
            WHEN r.args IS NOT NULL AND jsonb_typeof(r.args) <> 'object'
                THEN 'its args must be a JSON object, not ' || jsonb_typeof(r.args)
            WHEN octet_length(r.args::text) > limit_bytes
                THEN format('its args are %s bytes, more than %s: store them elsewhere and pass a reference',
                            octet_length(r.args::text), limit_bytes)
            WHEN r.priority NOT BETWEEN 0 AND 3 THEN 'its priority must be 0 to 3'
            WHEN r.queue = '' OR length(r.queue) > 100 THEN 'its queue must be a name of 1 to 100 characters'
            -- In bytes too: an index takes no more.
            WHEN r.key = '' OR length(r.key) > 500 OR octet_length(r.key) > 1500
                THEN 'its key must have 1 to 500 characters, and at most 1500 bytes'
            WHEN length(r.subject) > 500 THEN 'its subject must have at most 500 characters'
            WHEN r.max_attempts < 1 THEN 'its max_attempts must be at least 1'
            WHEN NOT (r.timeout_seconds > 0 AND r.timeout_seconds <= 31536000)
                THEN 'its timeout must be more than 0 and at most 365 days'
            WHEN r.delay_seconds IS NOT NULL AND r.run_at IS NOT NULL THEN 'it has both a delay and a run_at'
            WHEN NOT (r.delay_seconds >= 0 AND r.delay_seconds <= 3155760000)
                THEN 'its delay must be 0 to 100 years'
            WHEN NOT (r.run_at >= '1970-01-01Z' AND r.run_at < '2200-01-01Z')
                THEN 'its run_at must lie between 1970 and 2200'
            WHEN r.traceparent !~ '^[0-9a-f]{2}(-[0-9a-f]{32})(-[0-9a-f]{16})-[0-9a-f]{2}$'
                THEN 'its traceparent must be as the W3C writes it, 00-(32 hex digits)-(16)-(2)'
            WHEN r.limit_key = '' OR length(r.limit_key) > 200 THEN 'its limit must be a name of 1 to 200 characters'
            WHEN r.limit_key ~ '[*[:cntrl:]]'
                THEN 'its limit must be one key: no *, which is for patterns, and no control characters'
            WHEN r.schema_version < 0 THEN 'its schema_version must not be negative'
            -- Later it would be an ending that cannot be written.
            WHEN NOT (r.key_ttl_seconds = -1 OR (r.key_ttl_seconds >= 0 AND r.key_ttl_seconds <= 3155760000))
                THEN 'its key_ttl must be 0 to 100 years, or -1 for ever'
            WHEN r.on_dead NOT IN ('hold', 'cancel')
                THEN 'its on_dead must be hold or cancel, which says what becomes of it when a job that it '
                     'comes after is dead'
            WHEN r.after IS NULL THEN NULL
            WHEN jsonb_typeof(r.after) <> 'array'
                THEN 'its after must be an array of ids, not ' || jsonb_typeof(r.after)
            WHEN jsonb_array_length(r.after) > most_parents
                THEN format('it comes after %s jobs, more than %s: join them in steps', jsonb_array_length(r.after),
                            most_parents)
            ELSE (
                SELECT format('its after must hold ids of jobs, or {"item": n} for the n-th job of this call, '
                              'which comes before it, not %s', left(p.item::text, 40))
                FROM jsonb_array_elements(r.after) AS p (item)
                WHERE NOT coalesce(CASE jsonb_typeof(p.item)
                    WHEN 'number' THEN p.item::numeric = trunc(p.item::numeric)
                        AND p.item::numeric BETWEEN 1 AND 9223372036854775807
                    WHEN 'object' THEN p.item - 'item' = '{}' AND CASE jsonb_typeof(p.item -> 'item')
                        WHEN 'number' THEN (p.item -> 'item')::numeric = trunc((p.item -> 'item')::numeric)
                            AND (p.item -> 'item')::numeric BETWEEN 1 AND a.ord - 1
                    END
                END, false)
                LIMIT 1
            )
        END AS why
    ) AS w
    WHERE w.why IS NOT NULL
    ORDER BY a.ord
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'job % of this call (type %) was refused: %', wrong.ord, coalesce(wrong.type, 'missing'), wrong.why
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    -- Before any nextval('ready_seq'): the low-water marks rest on it.
    PERFORM pg_current_xact_id();

    -- Keys whose time is over make room, in their order. Deleted and not updated: whoever waits here
    -- for somebody else finds the row gone, and is left without a lock on what has taken its place.
    IF jsonb_path_exists(jobs, '$[*].key ? (@ != null)') THEN
        WITH wanted AS MATERIALIZED (
            SELECT DISTINCT a.item ->> 'type' AS type, a.item ->> 'key' AS key
            FROM jsonb_array_elements(jobs) AS a (item)
            WHERE a.item ->> 'key' IS NOT NULL
            ORDER BY 1, 2
        ),
        over AS MATERIALIZED (
            SELECT k.at
            FROM wanted AS w
            CROSS JOIN LATERAL (
                SELECT k.ctid AS at
                FROM job_key AS k
                WHERE k.type = w.type AND k.key = w.key AND k.until <= moment
                LIMIT 1
                FOR UPDATE
            ) AS k
        )
        DELETE FROM job_key AS k WHERE k.ctid = ANY(ARRAY(SELECT o.at FROM over AS o));
    END IF;

    WITH input AS MATERIALIZED (
        SELECT
            a.ord,
            r.type,
            coalesce(r.args, '{}') AS args,
            r.key,
            r.subject,
            coalesce(r.queue, t.queue, 'default') AS queue,
            coalesce(r.priority, t.priority, 0)::smallint AS priority,
            coalesce(r.run_at, moment + make_interval(secs => coalesce(r.delay_seconds, 0))) AS run_at,
            r.timeout_seconds,
            r.max_attempts,
            coalesce(r.schema_version, t.schema_version, 1) AS schema_version,
            coalesce(r.limit_key, t.limit_key) AS limit_key,
            r.traceparent,
            CASE
                WHEN r.key_ttl_seconds < 0 THEN NULL
                WHEN r.key_ttl_seconds IS NOT NULL THEN r.key_ttl_seconds
                WHEN t.name IS NOT NULL THEN t.key_ttl_seconds
                ELSE 86400
            END AS ttl_seconds,
            coalesce(jsonb_array_length(r.after), 0) > 0 AS comes_after,
            nextval(pg_get_serial_sequence('job', 'id')) AS new_id
        FROM jsonb_array_elements(jobs) WITH ORDINALITY AS a (item, ord)
        CROSS JOIN LATERAL jsonb_to_record(a.item) AS r (
            type text, args jsonb, key text, subject text, queue text, priority integer,
            delay_seconds double precision, run_at timestamptz, timeout_seconds double precision,
            max_attempts integer, schema_version integer, key_ttl_seconds double precision,
            limit_key text, after jsonb, traceparent text)
        LEFT JOIN LATERAL (SELECT * FROM job_type AS o WHERE o.name = r.type LIMIT 1) AS t ON true
    ),
    -- The first of each key in this call speaks for it. A key that somebody holds is not locked:
    -- the end of the job that holds it must not wait for the caller's transaction.
    wanted AS MATERIALIZED (
        SELECT d.*, h.job_id AS holder
        FROM (
            SELECT DISTINCT ON (i.type, i.key) i.type, i.key, i.new_id, i.ttl_seconds
            FROM input AS i
            WHERE i.key IS NOT NULL
            ORDER BY i.type, i.key, i.ord
        ) AS d
        LEFT JOIN LATERAL (
            SELECT k.job_id
            FROM job_key AS k
            WHERE k.type = d.type AND k.key = d.key AND (k.until IS NULL OR k.until > moment)
            LIMIT 1
        ) AS h ON true
    ),
    -- In the order of the keys, so that two calls with the same ones cannot deadlock. DO NOTHING
    -- waits for whoever has the key in hand, and keeps no lock.
    taken AS (
        INSERT INTO job_key (type, key, job_id, ttl_seconds)
        SELECT w.type, w.key, w.new_id, w.ttl_seconds
        FROM wanted AS w
        WHERE w.holder IS NULL
        ORDER BY w.type, w.key
        ON CONFLICT DO NOTHING
        RETURNING job_key.type, job_key.key, job_key.job_id
    ),
    -- Whose job each key is now; unknown as yet for one that somebody was quicker to take.
    held AS MATERIALIZED (
        SELECT * FROM taken
        UNION ALL SELECT w.type, w.key, w.holder FROM wanted AS w WHERE w.holder IS NOT NULL
    ),
    fresh AS MATERIALIZED (
        SELECT i.*
        FROM input AS i
        LEFT JOIN held AS h ON h.job_id = i.new_id
        WHERE i.key IS NULL OR h.job_id IS NOT NULL
    ),
    born AS (
        INSERT INTO job (id, type, queue, priority, key, subject, args, schema_version,
                         timeout_seconds, max_attempts, run_at, created_at, limit_key, traceparent)
        SELECT f.new_id, f.type, f.queue, f.priority, f.key, f.subject, f.args, f.schema_version,
               f.timeout_seconds, f.max_attempts, f.run_at, moment, f.limit_key, f.traceparent
        FROM fresh AS f
    ),
    queued AS (
        INSERT INTO ready (queue, priority, job_id)
        SELECT f.queue, f.priority, f.new_id
        FROM fresh AS f
        WHERE f.run_at <= moment AND f.limit_key IS NULL AND NOT f.comes_after
        ORDER BY f.ord
    ),
    -- Not let in here: that would take a lock, and the caller's transaction may be a long one.
    waiting AS (
        INSERT INTO blocked (job_id, reason, limit_key, priority, seq)
        SELECT o.new_id, 'limit', o.limit_key, o.priority, nextval('ready_seq')
        FROM (
            SELECT *
            FROM fresh AS f
            WHERE f.run_at <= moment AND f.limit_key IS NOT NULL AND NOT f.comes_after
            ORDER BY f.ord
        ) AS o
    ),
    arrived AS (
        INSERT INTO limit_arrival (limit_key)
        SELECT DISTINCT f.limit_key
        FROM fresh AS f
        WHERE f.run_at <= moment AND f.limit_key IS NOT NULL AND NOT f.comes_after
        RETURNING limit_arrival.limit_key
    ),
    later AS (
        INSERT INTO scheduled (run_at, job_id)
        SELECT f.run_at, f.new_id FROM fresh AS f WHERE f.run_at > moment AND NOT f.comes_after
    ),
    named AS (
        INSERT INTO queue_seen (name)
        SELECT d.queue
        FROM (SELECT DISTINCT f.queue FROM fresh AS f) AS d
        WHERE NOT EXISTS (SELECT FROM queue_seen AS q WHERE q.name = d.queue)
        RETURNING queue_seen.name
    )
    SELECT
        array_agg(coalesce(f.new_id, h.job_id) ORDER BY i.ord),
        array_agg(f.new_id IS NOT NULL ORDER BY i.ord),
        bool_or(f.run_at <= moment AND NOT f.comes_after),
        (SELECT count(*) FROM named) > 0
            -- Dispatchers that have never met a limit do not look for any.
            OR EXISTS (
                SELECT FROM arrived AS a
                WHERE NOT EXISTS (SELECT FROM limit_state AS s WHERE s.limit_key = a.limit_key)),
        bool_or(f.comes_after)
    INTO ids, news, any_due, any_named, any_after
    FROM input AS i
    LEFT JOIN fresh AS f ON f.ord = i.ord
    LEFT JOIN held AS h ON h.type = i.type AND h.key = i.key;

    -- Somebody was quicker, since this statement began: a new one sees the job.
    IF array_position(ids, NULL) IS NOT NULL THEN
        SELECT array_agg(
            coalesce(n.id, (
                SELECT k.job_id
                FROM job_key AS k
                WHERE k.type = jobs -> (n.ord::integer - 1) ->> 'type'
                    AND k.key = jobs -> (n.ord::integer - 1) ->> 'key'
                    AND (k.until IS NULL OR k.until > moment)
            )) ORDER BY n.ord)
        INTO ids
        FROM unnest(ids) WITH ORDINALITY AS n (id, ord);
    END IF;

    IF any_named THEN
        PERFORM announce();
    ELSIF any_due THEN
        PERFORM ring();
    END IF;

    -- Its time came to be over, or it was swept, between the two: it is our turn for what is left. What
    -- that comes after is known by its id now, or is left as well and has another number.
    IF array_position(ids, NULL) IS NOT NULL THEN
        WITH left_over AS MATERIALIZED (
            SELECT n.ord, jobs -> (n.ord::integer - 1) AS item
            FROM unnest(ids) WITH ORDINALITY AS n (id, ord)
            WHERE n.id IS NULL
        ),
        again AS MATERIALIZED (
            SELECT
                array_agg(l.ord ORDER BY l.ord) AS ords,
                jsonb_agg(l.item || CASE WHEN jsonb_typeof(l.item -> 'after') = 'array' THEN jsonb_build_object(
                    'after', (
                        SELECT coalesce(jsonb_agg(CASE
                            WHEN jsonb_typeof(p.item) <> 'object' THEN p.item
                            WHEN ids[(p.item ->> 'item')::integer] IS NOT NULL
                                THEN to_jsonb(ids[(p.item ->> 'item')::integer])
                            ELSE jsonb_build_object('item', (
                                SELECT count(*) FROM left_over AS o WHERE o.ord <= (p.item ->> 'item')::integer))
                        END), '[]')
                        FROM jsonb_array_elements(l.item -> 'after') AS p (item)))
                    ELSE '{}' END ORDER BY l.ord) AS jobs
            FROM left_over AS l
        ),
        came AS MATERIALIZED (
            SELECT a.ords[e.ord] AS ord, e.job_id, e.created
            FROM again AS a
            CROSS JOIN LATERAL enqueue_many(a.jobs, limit_bytes) AS e
        )
        SELECT array_agg(coalesce(n.id, c.job_id) ORDER BY n.ord), array_agg(coalesce(c.created, n.created) ORDER BY n.ord)
        INTO ids, own
        FROM unnest(ids, news) WITH ORDINALITY AS n (id, created, ord)
        LEFT JOIN came AS c ON c.ord = n.ord;
    ELSE
        own := news;
    END IF;
    -- Those of this very call: a call within it has held its own.
    IF any_after THEN
        PERFORM hold_steps(jobs, ids, news);
    END IF;
    RETURN QUERY SELECT n.ord, n.id, n.created FROM unnest(ids, own) WITH ORDINALITY AS n (id, created, ord);
END
$$;

-- SELECT jobctl.enqueue('send_invoice_email', '{"invoice_id": 1842}', key => 'invoice-email:1842')
CREATE OR REPLACE FUNCTION enqueue(
    type           text,
    args           jsonb DEFAULT '{}',
    key            text DEFAULT NULL,
    subject        text DEFAULT NULL,
    queue          text DEFAULT NULL,
    priority       integer DEFAULT NULL,
    delay          interval DEFAULT NULL,
    run_at         timestamptz DEFAULT NULL,
    timeout        interval DEFAULT NULL,
    max_attempts   integer DEFAULT NULL,
    schema_version integer DEFAULT NULL,
    limit_key      text DEFAULT NULL,
    after          bigint[] DEFAULT NULL,
    on_dead        text DEFAULT NULL
) RETURNS bigint
    LANGUAGE sql SET search_path FROM CURRENT
    RETURN (
        SELECT e.job_id
        FROM enqueue_many(jsonb_build_array(jsonb_build_object(
            'type', type, 'args', args, 'key', key, 'subject', subject, 'queue', queue,
            'priority', priority, 'delay_seconds', extract(epoch FROM delay), 'run_at', run_at,
            'timeout_seconds', extract(epoch FROM timeout), 'max_attempts', max_attempts,
            'schema_version', schema_version, 'limit_key', limit_key,
            'after', after, 'on_dead', on_dead))) AS e
    );
