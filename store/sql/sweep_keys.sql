-- sweep_keys: keys whose time is over. An hour late, so that an enqueue that met the key in its
--   snapshot still finds it.
-- Index: job_key_expired.
-- Parameters: most.
DELETE FROM job_key AS k
USING (
    SELECT type, key
    FROM job_key
    WHERE until < now() - interval '1 hour'
    ORDER BY until
    LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
) AS old
WHERE k.type = old.type AND k.key = old.key
RETURNING 1;
