-- settle_missing: what became of claims whose settling returned nothing.
-- locked: the claim is still there, somebody holds its row or the job's: settle it again.
-- outcome, state: this very claim has been settled (a COMMIT whose answer was lost, the handler's own
--   transaction, or somebody who ended it for us): how its attempt is recorded, and how its job is in
--   history. Both NULL: the claim was lost, or it never started and was handed back.
-- Index: the primary keys of claim and job, history_by_id, attempt_by_job.
-- Parameters: jobs, sessions, tokens (arrays of the same length).
SELECT
    a.job_id,
    a.token,
    c.job_id IS NOT NULL AS locked,
    t.outcome,
    h.state
FROM unnest(%(jobs)s::bigint[], %(sessions)s::bigint[], %(tokens)s::bigint[])
    AS a (job_id, session_id, token)
LEFT JOIN LATERAL (
    SELECT o.job_id
    FROM claim AS o
    CROSS JOIN LATERAL (SELECT FROM job AS j WHERE j.id = o.job_id LIMIT 1) AS j
    WHERE o.job_id = a.job_id AND o.session_id = a.session_id AND o.token = a.token
    LIMIT 1
) AS c ON true
LEFT JOIN LATERAL (
    SELECT t.outcome
    FROM attempt AS t
    WHERE t.job_id = a.job_id AND t.session_id = a.session_id AND t.token = a.token
    LIMIT 1
) AS t ON true
LEFT JOIN LATERAL (
    SELECT h.state
    FROM history AS h
    WHERE h.id = a.job_id AND h.session_id = a.session_id AND h.token = a.token
    LIMIT 1
) AS h ON true;
