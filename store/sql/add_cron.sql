-- add_cron: an operator's own cron, kept in the database alone.
-- Guard: a name that is there already stays as it is, and gives no row.
-- Parameters: name, definition, actor, reason (or NULL).
WITH added AS (
    INSERT INTO cron_entry (name, definition)
    VALUES (%(name)s, %(definition)s::jsonb)
    ON CONFLICT (name) DO NOTHING
    RETURNING name, definition
),
noted AS (
    INSERT INTO audit (actor, action, target, count, reason)
    SELECT %(actor)s, 'cron add', jsonb_build_object('cron', a.name, 'definition', a.definition), 1, %(reason)s
    FROM added AS a
)
SELECT name FROM added;
