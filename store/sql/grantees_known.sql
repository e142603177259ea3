-- grantees_known: does the schema remember which roles were given rights? One row if it does.
-- Why from the catalog: an older schema has no such table, and that must be no error.
-- Parameters: schema.
SELECT 1
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = 'grantee' AND c.relkind = 'r'
