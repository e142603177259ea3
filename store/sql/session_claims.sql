-- session_claims: every claim of this session, as PostgreSQL knows it. Asked after a reconnect:
--   what the host runs and is not here, it has lost; what is here and the host does not know, was
--   claimed by a statement whose answer was lost.
-- A scan of claim, which holds what runs now and nothing else.
-- Parameters: session.
SELECT c.job_id, c.token FROM claim AS c WHERE c.session_id = %(session)s;
