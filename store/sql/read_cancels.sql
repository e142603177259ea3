-- read_cancels: what this session holds and somebody wants ended: asked when the session is told that
--   there is something, when it is there anew, and with every renewal. One whose hook is all that is
--   left to run is here only if it is to be killed.
-- A scan of claim, which holds what runs now and nothing else; then the primary key of job.
-- Parameters: session.
SELECT
    c.job_id, c.token,
    extract(epoch FROM j.cancel_force_at - clock_timestamp())::double precision AS force_in,
    j.compensating IS TRUE AS compensating
FROM claim AS c
CROSS JOIN LATERAL (
    SELECT o.cancel_force_at, o.compensating
    FROM job AS o
    WHERE o.id = c.job_id AND o.cancel_requested_at IS NOT NULL
        AND (o.compensating IS NOT TRUE OR o.cancel_force_at IS NOT NULL)
    LIMIT 1
) AS j
WHERE c.session_id = %(session)s;
