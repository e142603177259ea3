-- read_limits: the limits as they stand, one row a key that has been used, and the rules that have not.
-- Index: limit_state's key; place_by_key and blocked_by_limit, each count up to a bound.
-- Parameters: key (a key or a pattern's rule; NULL: all), most (no count goes beyond).
SELECT
    l.limit_key, l.rule, l.max_running, l.rate, l.burst, l.brake, l.braked_to, l.held_until,
    (SELECT count(*) FROM (SELECT FROM place AS p WHERE p.limit_key = l.limit_key LIMIT %(most)s) AS c)
        AS held,
    (SELECT count(*) FROM (SELECT FROM blocked AS b WHERE b.limit_key = l.limit_key LIMIT %(most)s) AS c)
        AS waiting,
    (
        SELECT extract(epoch FROM now() - b.blocked_at)::double precision
        FROM blocked AS b
        WHERE b.limit_key = l.limit_key
        ORDER BY b.priority DESC, b.seq
        LIMIT 1
    ) AS age
FROM limits AS l
WHERE %(key)s::text IS NULL OR l.limit_key = %(key)s OR l.rule = %(key)s
ORDER BY l.rule NULLS LAST, l.limit_key;
