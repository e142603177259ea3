-- read_hosts: the supervisors that are there, or were lately.
-- Index: none: one row a supervisor.
-- Parameters: none.
SELECT
    n.id AS session,
    n.host,
    n.pid,
    n.version,
    CASE
        WHEN n.dead THEN 'dead'
        WHEN n.expires_at < now() THEN 'silent'
        WHEN n.draining AND n.busy = 0 THEN 'drained'
        WHEN n.draining OR n.drain_requested_at IS NOT NULL THEN 'draining'
        WHEN n.ready = 0 THEN 'not ready'
        ELSE 'working'
    END AS state,
    n.leader AND NOT n.dead AND n.expires_at > now() AS leader,
    n.slots,
    n.busy,
    n.ready,
    n.queues,
    n.types,
    n.started_at,
    n.renewed_at,
    n.expires_at,
    n.drain_requested_at,
    n.dead_because,
    extract(epoch FROM now() - n.renewed_at)::double precision AS silent_seconds
FROM session AS n
ORDER BY n.host, n.started_at;
