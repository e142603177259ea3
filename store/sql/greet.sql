-- greet: the first words on every connection of a supervisor: its settings, and who answers. A
--   server process other than the one that the connection was told of means that a pooler is
--   between, and none of what a supervisor rests on holds.
-- Parameters: names, values (arrays of the same length).
SELECT
    pg_backend_pid(),
    (
        SELECT count(set_config(s.name, s.value, false))
        FROM unnest(%(names)s::text[], %(values)s::text[]) AS s (name, value)
    );
