-- read_ids: which jobs match, newest first, driven from the place where the wanted state stands.
-- Index: the unique index by job_id of each placement table, read backwards, or the primary key of
--   job; history_by_id, merged over the partitions that `since` leaves. The places that are not
--   asked for are constants that are false and cost nothing.
-- Parameters: state, queue, type, error (a pattern of ILIKE), since, until (of created_at), after
--   (the last id of the page before): each may be NULL; most.
WITH standing AS (
    (SELECT id FROM job WHERE %(state)s::text IS NULL ORDER BY id DESC)
    UNION ALL
    (SELECT job_id FROM ready WHERE %(state)s = 'queued' ORDER BY job_id DESC)
    UNION ALL
    (SELECT job_id FROM scheduled WHERE %(state)s = 'scheduled' AND NOT retry ORDER BY job_id DESC)
    UNION ALL
    (SELECT job_id FROM scheduled WHERE %(state)s = 'retrying' AND retry ORDER BY job_id DESC)
    UNION ALL
    (SELECT job_id FROM claim WHERE %(state)s = 'running' ORDER BY job_id DESC)
    UNION ALL
    (SELECT job_id FROM blocked WHERE %(state)s = 'blocked' ORDER BY job_id DESC)
    UNION ALL
    (SELECT job_id FROM dead WHERE %(state)s = 'dead' ORDER BY job_id DESC)
),
open AS (
    SELECT s.id
    FROM standing AS s
    -- With its LIMIT this can only be looked up row by row, in the order of `standing`; as a plain
    -- join it is at times planned as a walk over all jobs.
    CROSS JOIN LATERAL (
        SELECT
        FROM job AS j
        WHERE j.id = s.id
            AND (%(queue)s::text IS NULL OR j.queue = %(queue)s)
            AND (%(type)s::text IS NULL OR j.type = %(type)s)
            AND (%(since)s::timestamptz IS NULL OR j.created_at >= %(since)s)
            AND (%(until)s::timestamptz IS NULL OR j.created_at < %(until)s)
            AND (%(error)s::text IS NULL OR j.failure_class ILIKE %(error)s
                OR j.last_error_code ILIKE %(error)s OR j.last_error ILIKE %(error)s)
        LIMIT 1
    ) AS matching
    WHERE %(after)s::bigint IS NULL OR s.id < %(after)s
    ORDER BY s.id DESC
    LIMIT %(most)s
),
finished AS (
    SELECT h.id
    FROM history AS h
    WHERE (%(state)s::text IS NULL OR h.state = %(state)s)
        AND (%(state)s::text IS NULL OR %(state)s IN ('succeeded', 'cancelled', 'discarded'))
        AND (%(after)s::bigint IS NULL OR h.id < %(after)s)
        AND (%(queue)s::text IS NULL OR h.queue = %(queue)s)
        AND (%(type)s::text IS NULL OR h.type = %(type)s)
        -- A job cannot be finished before it was created: this leaves out whole partitions.
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
