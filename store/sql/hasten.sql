-- hasten: scheduled | retrying -> queued, before its time.
-- Guard: it still stands in `scheduled`; what is being promoted this moment gets no row.
-- Index: scheduled_job.
-- Parameters: ids, actor, reason (or NULL), filter (JSON: what was asked for).
SELECT job_id
FROM hasten_many(%(ids)s::bigint[], %(actor)s::text, %(reason)s::text, %(filter)s::text::jsonb);
