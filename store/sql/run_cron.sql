-- run_cron: one more job of a cron now, because an operator wants it.
-- Parameters: name, actor, reason (or NULL).
-- Returns no row when there is no such cron.
WITH ran AS MATERIALIZED (
    SELECT r.job_id, r.scheduled_for FROM run_cron(%(name)s) AS r WHERE r.job_id IS NOT NULL
),
noted AS (
    INSERT INTO audit (actor, action, target, count, reason)
    SELECT %(actor)s, 'cron run', jsonb_build_object('cron', %(name)s::text, 'job', r.job_id), 1, %(reason)s
    FROM ran AS r
)
SELECT job_id, scheduled_for FROM ran;
