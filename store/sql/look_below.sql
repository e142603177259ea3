-- look_below: which lanes still hold something between two marks, and how far transactions are.
-- A plain SELECT on purpose: a row that another dispatcher has locked may come back if its claim
--   is rolled back, so it counts as being there.
-- Index: ready_claim.
-- Parameters: queues, priorities, lanes, after, upto (one element a lane).
SELECT
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax,
    ARRAY(
        SELECT EXISTS (
            SELECT FROM ready AS r
            WHERE r.queue = l.queue AND r.priority = l.priority AND r.lane = l.lane
                AND r.seq > l.after AND r.seq <= l.upto)
        FROM unnest(%(queues)s::text[], %(priorities)s::smallint[], %(lanes)s::text[],
                    %(after)s::bigint[], %(upto)s::bigint[])
            WITH ORDINALITY AS l (queue, priority, lane, after, upto, position)
        ORDER BY l.position
    ) AS occupied;
