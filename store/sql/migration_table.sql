-- migration_table: where the schema remembers what made it.
-- Why outside the migrations: they are recorded in it.
-- Guard: IF NOT EXISTS, under the migration lock. {schema} is the quoted name of the schema.
CREATE TABLE IF NOT EXISTS {schema}.migration (
    number          integer PRIMARY KEY,
    name            text NOT NULL,
    sha256          text NOT NULL,
    compatible_from integer NOT NULL,
    applied_at      timestamptz NOT NULL DEFAULT now()
)
