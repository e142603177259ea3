-- read_ids_by_key: as read_ids, for the jobs of one key.
-- Index: job_key's primary key, once for each type that has keys, finds the open ones, which hold
--   theirs until they end. History has no index by key: it is read newest first, the partitions
--   that `since` leaves, under the statement's time-out.
-- Parameters: key; state, queue, type, error, since, until, after: each may be NULL; most.
WITH RECURSIVE types AS (
    (SELECT k.type FROM job_key AS k ORDER BY k.type LIMIT 1)
    UNION ALL
    SELECT (SELECT k.type FROM job_key AS k WHERE k.type > t.type ORDER BY k.type LIMIT 1)
    FROM types AS t
    WHERE t.type IS NOT NULL
),
holding AS MATERIALIZED (
    SELECT k.job_id
    FROM types AS t
    JOIN job_key AS k ON k.type = t.type AND k.key = %(key)s
    WHERE %(type)s::text IS NULL OR k.type = %(type)s
),
open AS (
    SELECT j.id
    FROM jobs AS j
    -- An array, because a join with the view would read all of it.
    WHERE j.id = ANY(ARRAY(SELECT h.job_id FROM holding AS h))
        AND j.finished_at IS NULL
        AND (%(state)s::text IS NULL OR j.state = %(state)s)
        AND (%(after)s::bigint IS NULL OR j.id < %(after)s)
        AND (%(queue)s::text IS NULL OR j.queue = %(queue)s)
        AND (%(since)s::timestamptz IS NULL OR j.created_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR j.created_at < %(until)s)
        AND (%(error)s::text IS NULL OR j.failure_class ILIKE %(error)s
            OR j.last_error_code ILIKE %(error)s OR j.last_error ILIKE %(error)s)
),
finished AS (
    SELECT h.id
    FROM history AS h
    WHERE h.key = %(key)s
        AND (%(state)s::text IS NULL OR h.state = %(state)s)
        AND (%(state)s::text IS NULL OR %(state)s IN ('succeeded', 'cancelled', 'discarded'))
        AND (%(after)s::bigint IS NULL OR h.id < %(after)s)
        AND (%(queue)s::text IS NULL OR h.queue = %(queue)s)
        AND (%(type)s::text IS NULL OR h.type = %(type)s)
        AND (%(since)s::timestamptz IS NULL
            OR (h.created_at >= %(since)s AND h.finished_at >= %(since)s))
        AND (%(until)s::timestamptz IS NULL OR h.created_at < %(until)s)
        AND (%(error)s::text IS NULL OR h.failure_class ILIKE %(error)s
            OR h.last_error_code ILIKE %(error)s OR h.last_error ILIKE %(error)s)
    ORDER BY h.id DESC
    LIMIT %(most)s
)
SELECT id FROM open UNION ALL SELECT id FROM finished
ORDER BY id DESC
LIMIT %(most)s;
