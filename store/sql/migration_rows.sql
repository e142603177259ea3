-- migration_rows: what has been applied, in order.
-- Index: the whole table, a handful of rows. {schema} is the quoted name of the schema.
SELECT number, name, sha256, compatible_from
FROM {schema}.migration
ORDER BY number
