-- oldest_transaction: the age in seconds of the oldest transaction of this database, a prepared one
--   too: what vacuum must leave because of it is in the way of every claim.
-- Parameters: none.
SELECT coalesce(extract(epoch FROM max(now() - t.began)), 0)::double precision AS age
FROM (
    SELECT xact_start AS began
    FROM pg_stat_activity
    WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
        AND backend_type = 'client backend'
    UNION ALL
    SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()
) AS t;
