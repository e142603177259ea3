-- remove_cron: an operator's own cron is no more; its firings are kept until their time is over.
-- Guard: not one that hosts declare: it would be back in a moment.
-- Parameters: name, actor, reason (or NULL).
WITH removed AS (
    DELETE FROM cron_entry
    WHERE name = %(name)s AND definition ->> 'origin' = 'database'
    RETURNING name, definition
),
noted AS (
    INSERT INTO audit (actor, action, target, count, reason)
    SELECT %(actor)s, 'cron remove', jsonb_build_object('cron', r.name, 'definition', r.definition), 1, %(reason)s
    FROM removed AS r
)
SELECT name FROM removed;
