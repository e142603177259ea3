-- cancel_job: cancels one job, by whatever name; no row if there is none. For applications: see get_job.
-- Index: the unique index by job_id of each placement, the primary key of job, history_by_id.
-- Parameters: id; actor, reason, force_after (seconds): each may be NULL.
SELECT c.answer
FROM {schema}.cancel_many(ARRAY[%(id)s::bigint], %(actor)s::text, %(reason)s::text,
                          make_interval(secs => %(force_after)s::double precision)) AS c
