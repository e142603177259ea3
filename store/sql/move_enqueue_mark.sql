-- move_enqueue_mark: what was counted is not counted again, and what came since is next.
-- Guard: only from where the caller has read it, so that of two leaders one counts. The snapshot is
--   younger than `next_to`: whoever might still bring such a number is below `settled_at`.
-- Parameters: counted_from, counted_to, next_to.
UPDATE enqueue_mark
SET counted_to = %(counted_to)s, next_to = %(next_to)s,
    settled_at = pg_snapshot_xmax(pg_current_snapshot())
WHERE counted_to = %(counted_from)s
RETURNING 1;
