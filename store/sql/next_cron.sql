-- next_cron: in how many seconds the next entry is due; NULL: none ever.
-- Index: cron_entry_due, its first rows.
-- Parameters: only_later (what is due already does not count).
SELECT extract(epoch FROM min(e.next_at) - clock_timestamp())::double precision
FROM cron_entry AS e
WHERE e.disabled_at IS NULL AND e.retired_at IS NULL
    AND (NOT %(only_later)s OR e.next_at > now());
