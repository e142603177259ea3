-- owned_claims: of the claims that a host believes it holds, those that exist.
-- Index: the primary key of claim.
-- Parameters: jobs, tokens (arrays), session.
SELECT c.job_id, c.token
FROM claim AS c
WHERE c.job_id = ANY(%(jobs)s::bigint[])
    AND c.token = ANY(%(tokens)s::bigint[])
    AND c.session_id = %(session)s;
