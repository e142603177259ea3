-- mark_early: claims of a type that is acknowledged early, before anything of theirs starts. From here
--   on the attempt is taken for spent, whatever becomes of the host.
-- Guard: the claim's own token.
-- Index: the primary key of claim.
-- Parameters: session; jobs, tokens (arrays of the same length).
-- The connection commits asynchronously and this must not: it is set for this one transaction. Whatever
-- was committed before, the claim itself, reaches the disk with it.
WITH for_sure AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'on', true) AS word
)
UPDATE claim AS c
SET marked = true
FROM for_sure AS f, unnest(%(jobs)s::bigint[], %(tokens)s::bigint[]) AS a (job_id, token)
WHERE f.word = 'on' AND c.job_id = a.job_id AND c.token = a.token AND c.session_id = %(session)s
    -- Said twice: a plan that was made while claim was empty would walk it from end to end.
    AND c.job_id = ANY(%(jobs)s::bigint[])
RETURNING c.token;
