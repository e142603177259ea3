-- cancel_jobs: cancels any number of jobs; what runs is asked to end, and killed after force_after.
-- Guard: each is taken from where it stands; see the function.
-- Index: the unique index by job_id of each placement, the primary key of job, history_by_id.
-- Parameters: ids, actor, reason (or NULL), filter (JSON: what was asked for), force_after (seconds, or
--   NULL).
SELECT c.job_id, c.answer, c.changed
FROM cancel_many(%(ids)s::bigint[], %(actor)s, %(reason)s,
                 make_interval(secs => %(force_after)s::double precision), %(filter)s::jsonb) AS c;
