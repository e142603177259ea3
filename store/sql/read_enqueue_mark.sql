-- read_enqueue_mark: up to which number jobs have been counted, and up to which they can be: every
--   transaction that could still bring a job of a number up to `next_to` has ended.
-- Guard: who enqueues has a transaction id before a job has its number; `newest` is read after the
--   snapshot, so that a later statement's snapshot knows every transaction behind it.
-- Parameters: none.
SELECT
    counted_to,
    next_to,
    pg_snapshot_xmin(pg_current_snapshot()) >= settled_at AS settled,
    coalesce(pg_sequence_last_value(pg_get_serial_sequence('job', 'id')::regclass), 0) AS newest
FROM enqueue_mark;
