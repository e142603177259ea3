-- migration_record: this migration is applied; in the transaction that applies it, before the rest.
-- Guard: no row back means that somebody else applied it, should the migration lock not have held
--   (a pooler in between): the second waits here for the first, and then leaves it alone.
-- Index: the primary key. {schema} is the quoted name of the schema.
-- Parameters: number, name, sha256, compatible_from.
INSERT INTO {schema}.migration (number, name, sha256, compatible_from)
VALUES (%(number)s, %(name)s, %(sha256)s, %(compatible_from)s)
ON CONFLICT (number) DO NOTHING
RETURNING number
