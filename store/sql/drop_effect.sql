-- drop_effect: an attempt surely has not acted: its mark goes. False: its claim was lost.
-- Guard: (job, session, token) of the claim, and of the mark.
-- {schema} is the quoted name of the schema: the connection's search_path is the application's.
-- Parameters: key, job, session, token.
SELECT {schema}.drop_effect(
    %(key)s::text, %(job)s::bigint, %(session)s::bigint, %(token)s::bigint)
