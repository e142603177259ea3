-- migration_lock: the turn to migrate this schema, or not now.
-- Why try and never wait: a session that waits in pg_advisory_lock holds a snapshot, and CREATE INDEX
--   CONCURRENTLY of the one whose turn it is waits for that snapshot: a deadlock.
-- Guard: held by the session until it ends. Parameters: key (bigint, of the schema).
SELECT pg_catalog.pg_try_advisory_lock(%(key)s)
