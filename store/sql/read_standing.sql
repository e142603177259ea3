-- read_standing: where one open job stands among the others, for whoever asks why it does not run.
--   Counts stop at `most`.
-- Index: the keys of the placements by job_id, then ready_claim: its lane below its own number, and
--   the higher priorities of its queue.
-- Parameters: id, most.
SELECT
    r.lane,
    CASE WHEN r.job_id IS NOT NULL THEN (
        SELECT count(*)
        FROM (
            SELECT FROM ready AS o
            WHERE o.queue = r.queue AND o.priority = r.priority AND o.lane = r.lane AND o.seq < r.seq
            LIMIT %(most)s
        ) AS earlier
    ) END AS ahead,
    CASE WHEN r.job_id IS NOT NULL THEN (
        SELECT count(*)
        FROM (
            SELECT FROM ready AS o
            WHERE o.queue = r.queue AND o.priority > r.priority
            LIMIT %(most)s
        ) AS higher
    ) END AS above,
    b.reason AS blocked_reason,
    b.blocked_at,
    b.limit_key,
    CASE WHEN b.limit_key IS NOT NULL THEN (
        SELECT count(*)
        FROM (
            SELECT FROM blocked AS o
            WHERE o.limit_key = b.limit_key
                AND (o.priority > b.priority OR (o.priority = b.priority AND o.seq < b.seq))
            LIMIT %(most)s
        ) AS earlier
    ) END AS waiting_ahead,
    c.session_id,
    c.claimed_at,
    c.started_at,
    c.deadline_at,
    c.slot,
    n.host,
    n.dead AS host_dead,
    n.renewed_at,
    n.expires_at,
    t.schema_version AS known_version
FROM job AS j
LEFT JOIN ready AS r ON r.job_id = j.id
LEFT JOIN blocked AS b ON b.job_id = j.id
LEFT JOIN claim AS c ON c.job_id = j.id
LEFT JOIN session AS n ON n.id = c.session_id
LEFT JOIN job_type AS t ON t.name = j.type
WHERE j.id = %(id)s;
