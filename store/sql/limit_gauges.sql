-- limit_gauges: how the limits stand, by rule, for the metrics: a label for each key would be a label for
--   each tenant.
-- Index: limit_state once; place_by_key and blocked_by_limit, each count up to a bound.
-- Parameters: most (no count goes beyond, of one key).
SELECT
    s.rule,
    max(s.max_running) AS places,
    sum(h.n)::bigint AS held,
    sum(w.n)::bigint AS waiting,
    max(w.age) AS age,
    count(*) FILTER (WHERE s.braked_to IS NOT NULL OR s.held_until > now()) AS restrained
FROM (SELECT * FROM limit_state AS l WHERE l.rule IS NOT NULL LIMIT 10000) AS s
CROSS JOIN LATERAL (
    SELECT count(*) AS n
    FROM (SELECT FROM place AS p WHERE p.limit_key = s.limit_key LIMIT %(most)s) AS c
) AS h
CROSS JOIN LATERAL (
    SELECT
        (SELECT count(*) FROM (
            SELECT FROM blocked AS b WHERE b.limit_key = s.limit_key LIMIT %(most)s) AS c) AS n,
        (
            SELECT extract(epoch FROM now() - b.blocked_at)::double precision
            FROM blocked AS b
            WHERE b.limit_key = s.limit_key
            ORDER BY b.priority DESC, b.seq
            LIMIT 1
        ) AS age
) AS w
GROUP BY s.rule
ORDER BY s.rule;
