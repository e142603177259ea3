-- sweep_lanes: lanes of types that have been empty for long. A job that moves there at the same
--   moment touches the lane's row, so either it is seen here or the row is made again.
-- Parameters: none.
DELETE FROM lane AS l
WHERE l.created_at < now() - interval '1 hour'
    AND NOT EXISTS (
        SELECT FROM ready AS r
        WHERE r.queue = l.queue AND r.priority = l.priority AND r.lane = l.lane)
RETURNING 1;
