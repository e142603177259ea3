-- sweep_cron_fires: firings older than history is kept; the last one of each cron stays.
-- Index: cron_fire_by_age, and the key for what is newer.
-- Parameters: keep (seconds), most.
DELETE FROM cron_fire AS f
USING (
    SELECT o.name, o.scheduled_for
    FROM cron_fire AS o
    WHERE o.fired_at < now() - make_interval(secs => %(keep)s)
        AND EXISTS (
            SELECT FROM cron_fire AS n WHERE n.name = o.name AND n.scheduled_for > o.scheduled_for)
    ORDER BY o.fired_at
    LIMIT %(most)s
) AS old
WHERE f.name = old.name AND f.scheduled_for = old.scheduled_for
RETURNING 1;
