-- read_lacking: which of these rights a role does not have, by itself or as a member of others.
-- Parameters: role (NULL: who asks), schema; what (table, sequence, function), names, privileges,
--   columns ('': the whole table): arrays of one length. What does not exist is not lacking.
WITH schema AS (
    SELECT n.oid, has_schema_privilege(coalesce(%(role)s::text, current_user), n.oid, 'USAGE') AS open
    FROM pg_catalog.pg_namespace AS n
    WHERE n.nspname = %(schema)s
)
SELECT w.what, w.name, w.privilege, w.col
FROM schema AS s
CROSS JOIN unnest(%(what)s::text[], %(names)s::text[], %(privileges)s::text[], %(columns)s::text[])
    WITH ORDINALITY AS w (what, name, privilege, col, ord)
LEFT JOIN pg_catalog.pg_class AS c
    ON c.relnamespace = s.oid AND c.relname = w.name AND w.what <> 'function'
LEFT JOIN pg_catalog.pg_proc AS p
    ON p.pronamespace = s.oid AND p.proname = w.name AND w.what = 'function'
CROSS JOIN LATERAL (SELECT coalesce(%(role)s::text, current_user)::name AS role) AS r
WHERE (c.oid IS NOT NULL OR p.oid IS NOT NULL) AND NOT (s.open AND CASE
    WHEN w.what = 'function' THEN has_function_privilege(r.role, p.oid, w.privilege)
    WHEN w.what = 'sequence' THEN has_sequence_privilege(r.role, c.oid, w.privilege)
    WHEN w.col <> '' THEN has_column_privilege(r.role, c.oid, w.col, w.privilege)
    ELSE has_table_privilege(r.role, c.oid, w.privilege)
END)
ORDER BY w.ord
