-- fire_cron: the planned times of one cron and their jobs, in one transaction.
-- Guard: unique (name, scheduled_for) in cron_fire; who inserts the row fires.
-- Parameters: name, seen (the definition), as_of, moments, too_late (or NULL), missed, then_at.
SELECT scheduled_for, result, job_id, lag
FROM fire_cron(%(name)s, %(seen)s::jsonb, %(as_of)s, %(moments)s::timestamptz[], %(too_late)s,
               %(missed)s, %(then_at)s);
