-- lock_claim: a handler is about to commit the success of its own job: nobody else may end it now.
--   The claim before the job, as everybody locks them.
-- Guard: (job, session, token) of the claim. No row: it is not this attempt's any more.
-- {schema} is the quoted name of the schema: the connection's search_path is the application's.
-- Parameters: job, session, token.
SELECT j.id
FROM (
    SELECT c.job_id
    FROM {schema}.claim AS c
    WHERE c.job_id = %(job)s AND c.session_id = %(session)s AND c.token = %(token)s
    LIMIT 1
    FOR UPDATE
) AS mine
CROSS JOIN LATERAL (
    SELECT o.id FROM {schema}.job AS o WHERE o.id = mine.job_id LIMIT 1 FOR UPDATE
) AS j
