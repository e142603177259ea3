-- finish_effect: an attempt has acted, and this is what it returned. False: its claim was lost.
-- Guard: (job, session, token) of the claim, locked until the end of the transaction.
-- {schema} is the quoted name of the schema: the connection's search_path is the application's.
-- Parameters: key, value (JSON text), job, session, token.
SELECT {schema}.finish_effect(
    %(key)s::text, %(value)s::text, %(job)s::bigint, %(session)s::bigint, %(token)s::bigint)
