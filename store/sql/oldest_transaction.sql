-- oldest_transaction: the age of the oldest snapshot or transaction in this database's way.
-- Parameters: none.
SELECT coalesce(extract(epoch FROM max(now() - xact_start)), 0)::double precision
FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend';
