-- annotate_claims: attempts that have lasted about a second say where they run and until when.
-- Guard: the claim's own token.
-- Index: the primary key of claim.
-- Parameters: session; jobs, tokens, slots, pids, started_ago, left (seconds from now until
--   deadline, grace and a lease have passed): arrays of the same length.
UPDATE claim AS c
SET slot = a.slot,
    pid = a.pid,
    started_at = clock_timestamp() - make_interval(secs => a.started_ago),
    deadline_at = clock_timestamp() + make_interval(secs => a.remains)
FROM unnest(%(jobs)s::bigint[], %(tokens)s::bigint[], %(slots)s::integer[], %(pids)s::integer[],
            %(started_ago)s::double precision[], %(remains)s::double precision[])
    AS a (job_id, token, slot, pid, started_ago, remains)
WHERE c.job_id = a.job_id AND c.token = a.token AND c.session_id = %(session)s
    -- Said twice: a plan that was made while claim was empty would walk it from end to end.
    AND c.job_id = ANY(%(jobs)s::bigint[]);
