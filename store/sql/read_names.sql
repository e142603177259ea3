-- read_names: the names that people type, for a shell that completes them.
-- Index: none: one row a queue, a type, a host, a cron.
-- Parameters: none.
SELECT 'queue' AS kind, q.name FROM queue AS q
UNION SELECT 'type', t.name FROM job_type AS t
UNION SELECT 'host', s.host FROM session AS s WHERE NOT s.dead
UNION SELECT 'cron', e.name FROM cron_entry AS e
ORDER BY 1, 2;
