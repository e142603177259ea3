-- move_deadlines: the database's clock was set forward; what was claimed before keeps the time that
--   it had left.
-- A scan of claim, which holds what runs now and nothing else.
-- Parameters: before (seconds of the epoch: claimed by the old clock), seconds (by how much).
UPDATE claim
SET deadline_at = deadline_at + make_interval(secs => %(seconds)s)
WHERE claimed_at <= to_timestamp(%(before)s);
