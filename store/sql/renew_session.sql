-- renew_session: the lease of every claim of this session goes on. One row a host.
-- Guard: NOT dead. No row back: the session was declared dead, its claims belong to others.
-- Index: the primary key.
-- Parameters: session, lease (seconds), draining, busy, ready, leader, types.
-- Returns whether a drain is asked for, and whether another host seems to lead.
UPDATE session AS s
SET renewed_at = clock_timestamp(),
    expires_at = clock_timestamp() + make_interval(secs => %(lease)s),
    draining = %(draining)s,
    busy = %(busy)s,
    ready = %(ready)s,
    leader = %(leader)s,
    types = %(types)s::text[]
WHERE s.id = %(session)s AND NOT s.dead
RETURNING
    s.drain_requested_at IS NOT NULL AS drain_requested,
    EXISTS (
        SELECT
        FROM session AS o
        WHERE o.leader AND NOT o.dead AND o.id <> s.id AND o.expires_at > clock_timestamp()
    ) AS another_leads;
