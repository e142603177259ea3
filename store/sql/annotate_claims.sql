-- annotate_claims: attempts that have lasted about a second say where they run and until when.
-- Guard: the claim's own token; a claim that somebody has locked is about to end.
-- Index: the primary key of claim.
-- Parameters: session; jobs, tokens, slots, pids, started_ago, left (seconds from now until
--   deadline, grace and a lease have passed): arrays of the same length.
WITH told AS MATERIALIZED (
    SELECT a.*
    FROM unnest(%(jobs)s::bigint[], %(tokens)s::bigint[], %(slots)s::integer[], %(pids)s::integer[],
                %(started_ago)s::double precision[], %(remains)s::double precision[])
        AS a (job_id, token, slot, pid, started_ago, remains)
    CROSS JOIN LATERAL (
        SELECT FROM claim AS o
        WHERE o.job_id = a.job_id AND o.token = a.token AND o.session_id = %(session)s
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS c
)
UPDATE claim AS c
SET slot = t.slot,
    pid = t.pid,
    started_at = clock_timestamp() - make_interval(secs => t.started_ago),
    deadline_at = clock_timestamp() + make_interval(secs => t.remains)
FROM told AS t
WHERE c.job_id = t.job_id AND c.token = t.token AND c.session_id = %(session)s
    -- Said twice: a plan that was made while claim was empty would walk it from end to end.
    AND c.job_id = ANY(%(jobs)s::bigint[]);
