-- cron_names: what is on, for the metrics, and how long it has been due without having been fired.
-- Parameters: none.
SELECT e.name, greatest(0, extract(epoch FROM clock_timestamp() - e.next_at))::double precision AS late
FROM cron_entry AS e
WHERE e.disabled_at IS NULL AND e.retired_at IS NULL
ORDER BY e.name;
