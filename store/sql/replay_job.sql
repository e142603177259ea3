-- replay_job: dead -> queued. `queued` is false, and nothing changed, if it is not dead; no row if
--   there is no such job. For applications: see get_job.
-- Index: dead's primary key.
-- Parameters: id; actor, reason: each may be NULL.
SELECT {schema}.replay(%(id)s::bigint, %(actor)s::text, %(reason)s::text) AS queued
WHERE EXISTS (SELECT FROM {schema}.get(%(id)s::bigint))
