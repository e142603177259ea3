-- read_pauses: every queue that was ever seen or is paused, with who paused it, when and why.
-- Index: none: one row a queue.
-- Parameters: none.
SELECT
    q.name,
    q.created_at,
    q.paused_at,
    q.paused_by,
    q.paused_reason
FROM queue AS q
ORDER BY q.name;
