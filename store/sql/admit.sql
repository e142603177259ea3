-- admit: blocked -> queued, or scheduled for the moment that its rate gives it: jobs whose limit has room,
--   where somebody has left a note that it may, or where the time has come.
-- Guard: `admit` in the schema: the lock of the key, then a count; what is locked is skipped.
-- Index: limit_state_due; blocked_by_limit, place_by_key.
-- Parameters: none.
SELECT moved, next_in FROM admit_arrivals();
