-- renew_session: the lease of every claim of this session goes on. One row a host.
-- Guard: NOT dead. No row back: the session was declared dead, its claims belong to others.
-- Index: the primary key.
-- Parameters: session, lease (seconds), draining, busy, leader, types.
UPDATE session
SET renewed_at = clock_timestamp(),
    expires_at = clock_timestamp() + make_interval(secs => %(lease)s),
    draining = %(draining)s,
    busy = %(busy)s,
    leader = %(leader)s,
    types = %(types)s::text[]
WHERE id = %(session)s AND NOT dead
RETURNING drain_requested_at IS NOT NULL AS drain_requested;
