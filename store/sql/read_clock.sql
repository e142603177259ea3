-- read_clock: what time it is, for everybody.
-- Parameters: none.
SELECT clock_timestamp() AS now;
