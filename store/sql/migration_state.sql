-- migration_state: does the schema exist, and does its table of migrations?
-- Why from the catalog: a missing name must be an answer, not an error in the caller's transaction.
-- Index: the catalog's own. Parameters: schema.
SELECT
    EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname = %(schema)s),
    EXISTS (
        SELECT
        FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = %(schema)s AND c.relname = 'migration' AND c.relkind = 'r'
    )
