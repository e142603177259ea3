-- enqueue_many: (born) -> queued | scheduled, any number of jobs, in the caller's transaction.
-- Why a function: every language enqueues through the same one; it checks, finds the keys, rings.
-- Guard: table job_key, one job a (type, key).
-- {schema} is the quoted name of the schema: the connection is the application's, and so is its
--   search_path.
-- Parameters: jobs (a JSON array, as text: see store/callers.py), limit (the most bytes of one job's args).
SELECT e.ord, e.job_id
FROM {schema}.enqueue_many(%(jobs)s::text::jsonb, %(limit)s::integer) AS e
ORDER BY e.ord
