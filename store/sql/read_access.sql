-- read_access: who we are and how we came, for doctor.
-- Parameters: sees (the predefined role whose members see other users' sessions).
-- `version`, `cipher`: NULL without TLS, and to a role (SET ROLE) that may not see its own login's session.
-- `near`: a socket of this machine, or its loopback; what is in between (a tunnel) is not seen.
SELECT
    current_user::text AS login,
    pg_has_role(current_user, %(sees)s, 'USAGE') AS sees_others,
    ARRAY(
        SELECT p.proname::text
        FROM pg_catalog.pg_proc AS p
        JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema() AND p.prosecdef
            AND has_function_privilege('public', p.oid, 'EXECUTE')
        ORDER BY p.proname
    ) AS for_everybody,
    s.version,
    s.cipher,
    inet_server_addr() IS NULL OR inet_server_addr() << '127.0.0.0/8' OR inet_server_addr() = '::1' AS near,
    host(inet_server_addr()) AS server
FROM (SELECT pg_backend_pid() AS pid) AS own
LEFT JOIN pg_catalog.pg_stat_ssl AS s ON s.pid = own.pid;
