-- read_server: what a PostgreSQL says of itself that jobctl depends on.
-- Index: none: PostgreSQL's own views. `reset_val` is what a session begins with, whatever this one
--   has set for itself.
-- Parameters: names (of settings).
SELECT
    pg_backend_pid() AS backend_pid,
    current_setting('server_version_num')::integer AS version,
    clock_timestamp() AS clock,
    pg_is_in_recovery() AS in_recovery,
    (SELECT jsonb_object_agg(s.name, s.reset_val) FROM pg_settings AS s
     WHERE s.name = ANY(%(names)s::text[])) AS settings,
    (SELECT count(*) FROM pg_stat_activity AS a WHERE a.backend_type = 'client backend') AS clients,
    current_setting('max_connections')::integer
        - current_setting('superuser_reserved_connections')::integer AS most_clients;
