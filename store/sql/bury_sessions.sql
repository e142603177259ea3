-- bury_sessions: these sessions are proven dead; their claims are free to be reclaimed.
-- Guard: NOT dead, so that each is buried and counted once.
-- Parameters: sessions (array), because.
UPDATE session
SET dead = true, dead_because = %(because)s
WHERE id = ANY(%(sessions)s::bigint[]) AND NOT dead
RETURNING id, host;
