-- still_leads: whether this very server process holds the leader's lock.
-- Parameters: backend (the pid that took it: a pooler in between would show another).
SELECT pg_backend_pid() = %(backend)s AND EXISTS (
    SELECT
    FROM pg_locks AS l
    CROSS JOIN (SELECT hashtextextended('jobctl leader ' || current_schema(), 0) AS key) AS k
    WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid::bigint = (k.key >> 32) & 4294967295
        AND l.objid::bigint = k.key & 4294967295);
