-- mend_limits: places that nobody holds are given back, and whoever could be let in is; by the leader.
-- Guard: SKIP LOCKED; the deleting is not gated by any limit.
-- Index: place's primary key, once through; blocked_by_limit by jumps.
-- Parameters: none.
SELECT places, moved FROM mend_limits();
