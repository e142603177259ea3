-- drop_history: a partition of history goes, with all that is in it; by the leader.
-- Guard: only a partition, and none of the last days: see the function. Waits for readers no longer
--   than lock_timeout.
-- Parameters: name.
SELECT drop_history_partition(%(name)s::text);
