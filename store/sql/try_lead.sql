-- try_lead: takes the leader's lock for this connection if nobody holds it. A pooler in between is
--   recognised first: it would keep the lock when we are gone.
-- Parameters: backend (the server process that this connection was told of when it began).
SELECT
    pg_backend_pid() = %(backend)s AS direct,
    CASE WHEN pg_backend_pid() = %(backend)s
        THEN pg_try_advisory_lock(hashtextextended('jobctl leader ' || current_schema(), 0))
        ELSE false
    END AS taken;
