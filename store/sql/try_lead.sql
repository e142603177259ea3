-- try_lead: takes the leader's lock for this connection if nobody holds it.
-- Parameters: none.
SELECT pg_try_advisory_lock(hashtextextended('jobctl leader ' || current_schema(), 0));
