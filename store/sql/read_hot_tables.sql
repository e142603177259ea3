-- read_hot_tables: the tables that change with every job: how many dead rows they carry, when they
--   were vacuumed last, and whether somebody has switched that off.
-- Index: none: PostgreSQL's own counters.
-- Parameters: names.
SELECT
    s.relname AS name,
    s.n_live_tup AS live,
    s.n_dead_tup AS dead,
    greatest(s.last_vacuum, s.last_autovacuum) AS vacuumed_at,
    pg_total_relation_size(s.relid) AS bytes,
    coalesce(c.reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off'], false)
        AS never_vacuumed
FROM pg_stat_user_tables AS s
JOIN pg_class AS c ON c.oid = s.relid
WHERE s.schemaname = current_schema() AND s.relname = ANY(%(names)s::text[])
ORDER BY s.relname;
