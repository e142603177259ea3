-- sweep_children: blocked -> queued | scheduled | cancelled, for children that nobody let go: see the
--   function. A scan of the part of `blocked` that is asked for, and of what holds each.
-- Index: blocked_pkey, job_edge_by_child, the primary keys of job and dead, history_by_id.
-- Parameters: since (an id, 0 at first), most.
SELECT s.upto, s.released, s.cancelled
FROM sweep_children(%(since)s::bigint, %(most)s::integer) AS s;
