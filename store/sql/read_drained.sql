-- read_drained: how far these supervisors are with their drains. One that has left has no row.
-- Index: session's primary key; claim is read whole: it holds what all hosts run, and no more.
-- Parameters: sessions (ids).
SELECT
    n.id,
    n.host,
    n.draining,
    NOT n.dead AND n.expires_at > now() AS alive,
    (SELECT count(*) FROM claim AS c WHERE c.session_id = n.id) AS claims
FROM session AS n
WHERE n.id = ANY(%(sessions)s::bigint[])
ORDER BY n.host, n.id;
