-- mark_leader: whoever has just taken the lock is the one that leads; a host that led and has frozen
--   cannot say that it does so no more.
-- Parameters: session.
UPDATE session SET leader = (id = %(session)s) WHERE leader <> (id = %(session)s) AND NOT dead;
