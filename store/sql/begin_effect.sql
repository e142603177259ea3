-- begin_effect: an attempt is about to act; what is known of it, and with `mark` a mark.
-- Guard: (job, session, token) of the claim, and the key.
-- {schema} is the quoted name of the schema: the connection's search_path is the application's.
-- Parameters: key, mark, lock (the claim, until the end of the transaction), job, session, token.
SELECT e.state, e.value, e.marked_by
FROM {schema}.begin_effect(
    %(key)s::text, %(mark)s::boolean, %(lock)s::boolean, %(job)s::bigint, %(session)s::bigint,
    %(token)s::bigint) AS e
