-- due_crons: entries with a planned time that has come by the database's clock, or whose next one is
--   not worked out yet; one row each with that clock.
-- Index: cron_entry_due.
-- Parameters: most.
SELECT now() AS as_of, e.name, e.definition::text, e.judged_until
FROM cron_entry AS e
WHERE e.disabled_at IS NULL AND e.retired_at IS NULL AND (e.next_at <= now() OR e.next_at IS NULL)
ORDER BY e.next_at NULLS FIRST, e.name
LIMIT %(most)s;
