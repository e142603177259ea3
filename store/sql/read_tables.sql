-- read_tables: how large each table is with its indexes, and how many rows of it vacuum has not
--   removed; the partitions of history together.
-- The catalogue and the statistics, no table of ours is read.
-- Parameters: none.
SELECT
    CASE WHEN c.relname ~ '^history_' THEN 'history' ELSE c.relname END AS name,
    sum(pg_total_relation_size(c.oid))::bigint AS bytes,
    coalesce(sum(pg_stat_get_dead_tuples(c.oid)), 0)::bigint AS dead_rows
FROM pg_class AS c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
GROUP BY 1
ORDER BY 1;
