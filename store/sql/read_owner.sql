-- read_owner: whose the schema is.
-- Parameters: schema.
SELECT pg_catalog.pg_get_userbyid(n.nspowner)
FROM pg_catalog.pg_namespace AS n
WHERE n.nspname = %(schema)s
