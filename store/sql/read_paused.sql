-- read_paused: the queues from which nothing is claimed.
-- Parameters: none.
SELECT name FROM queue_pause ORDER BY name;
