-- read_flow: how many jobs were enqueued, finished and died, and attempts went wrong, since PostgreSQL
--   began to count: whoever asks twice has the speed. Costs no look at any job.
-- Index: none: PostgreSQL's own counters, about a second behind.
-- Parameters: none.
SELECT
    clock_timestamp() AS at,
    coalesce(sum(s.n_tup_ins) FILTER (WHERE s.relname = 'job'), 0)::bigint AS enqueued,
    coalesce(sum(s.n_tup_ins) FILTER (WHERE s.relname LIKE 'history\_%%'), 0)::bigint AS finished,
    coalesce(sum(s.n_tup_ins) FILTER (WHERE s.relname = 'attempt'), 0)::bigint AS unsuccessful,
    coalesce(sum(s.n_tup_ins) FILTER (WHERE s.relname = 'dead'), 0)::bigint AS died
FROM pg_stat_all_tables AS s
WHERE s.schemaname = current_schema();
