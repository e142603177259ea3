-- read_crons: every cron, or one, with its last firing.
-- Index: the key of cron_fire for each; cron_entry is small.
-- Parameters: name (NULL: all).
SELECT *
FROM cron
WHERE %(name)s::text IS NULL OR name = %(name)s
ORDER BY name;
