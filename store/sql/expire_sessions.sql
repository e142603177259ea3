-- expire_sessions: leases that are over by the database's clock, with a grace.
-- Guard: NOT dead; a renewal at the same moment wins or loses by its row lock.
-- Parameters: grace (seconds).
UPDATE session
SET dead = true, dead_because = 'lease expired'
WHERE NOT dead AND expires_at < clock_timestamp() - make_interval(secs => %(grace)s)
RETURNING id, host;
