-- peek: the last number that any writer of ready has taken. One page: the cheap question before a
--   claim, for the moments after a ring in which others enqueue silently.
-- Parameters: none.
SELECT last_value FROM ready_seq;
