-- release_limit: takes back the brake, and the wait that somebody was told; false if no job ever came
--   with this key.
-- Guard: the row of the key.
-- Parameters: key, actor, reason.
SELECT release_limit(%(key)s, %(actor)s, %(reason)s) AS done;
