-- try_lead: takes the leader's lock for this connection if nobody holds it. Not from a pooler's
--   server process, which would keep the lock when we are gone: a link refuses poolers when it
--   connects, and this is the second look.
-- Parameters: backend (the server process that this connection was told of when it began).
SELECT
    CASE WHEN pg_backend_pid() = %(backend)s
        THEN pg_try_advisory_lock(hashtextextended('jobctl leader ' || current_schema(), 0))
        ELSE false
    END AS taken;
