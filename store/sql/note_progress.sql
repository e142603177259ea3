-- note_progress: what running attempts have said of how far they are, once a second at the most.
-- Guard: the claim's own token, held until the end; a job or a claim that somebody has locked is left
--   out: it is said again, or with the attempt's end.
-- Not waited for: losing it in a crash of PostgreSQL costs a second's news.
-- Index: the primary keys of claim and job.
-- Parameters: session; jobs, tokens, said (JSON texts, see dated_progress): arrays of one length.
WITH hurried AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
),
mine AS MATERIALIZED (
    SELECT a.job_id, a.said
    FROM unnest(%(jobs)s::bigint[], %(tokens)s::bigint[], %(said)s::text[]) AS a (job_id, token, said)
    CROSS JOIN LATERAL (
        SELECT FROM claim AS o
        WHERE o.job_id = a.job_id AND o.token = a.token AND o.session_id = %(session)s
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS c
    CROSS JOIN LATERAL (
        SELECT FROM job AS o WHERE o.id = a.job_id LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS j
    WHERE (SELECT count(*) FROM hurried) = 1
)
UPDATE job AS j
SET progress = dated_progress(m.said::jsonb)
FROM mine AS m
WHERE j.id = m.job_id AND j.id = ANY(%(jobs)s::bigint[]);
