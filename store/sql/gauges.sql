-- gauges: the fleet's numbers for the metrics, by queue; counted up to a bound, never beyond.
-- Index: ready_claim and the primary keys; each count stops at `most`.
-- Parameters: most.
SELECT q.name AS queue, s.state, s.jobs, s.age
FROM queue AS q
CROSS JOIN LATERAL (
    SELECT
        'queued' AS state,
        (SELECT count(*) FROM (
            SELECT FROM ready AS r WHERE r.queue = q.name LIMIT %(most)s) AS c) AS jobs,
        (
            -- The head of each lane: the oldest that is due, or close to it.
            SELECT extract(epoch FROM now() - min(j.run_at))::double precision
            FROM (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS p (priority)
            CROSS JOIN LATERAL (
                SELECT '' AS lane UNION ALL SELECT 'front'
                UNION ALL
                SELECT l.lane FROM lane AS l WHERE l.queue = q.name AND l.priority = p.priority
            ) AS n
            CROSS JOIN LATERAL (
                SELECT r.job_id
                FROM ready AS r
                WHERE r.queue = q.name AND r.priority = p.priority AND r.lane = n.lane
                ORDER BY r.seq
                LIMIT 1
            ) AS h
            JOIN job AS j ON j.id = h.job_id
        ) AS age
) AS s
UNION ALL
SELECT j.queue, o.state, count(*), NULL
FROM (
    (SELECT job_id, CASE WHEN retry THEN 'retrying' ELSE 'scheduled' END AS state
     FROM scheduled LIMIT %(most)s)
    UNION ALL
    (SELECT job_id, 'running' FROM claim LIMIT %(most)s)
    UNION ALL
    (SELECT job_id, 'blocked' FROM blocked LIMIT %(most)s)
    UNION ALL
    (SELECT job_id, 'dead' FROM dead LIMIT %(most)s)
) AS o
JOIN job AS j ON j.id = o.job_id
GROUP BY j.queue, o.state;
