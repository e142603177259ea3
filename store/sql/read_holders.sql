-- read_holders: what keeps dead rows from being cleaned away: open transactions, prepared ones,
--   replication slots, standbys that say what they still read. The oldest first.
-- Index: none: PostgreSQL's own views. Of other users' sessions a user without pg_read_all_stats sees
--   that they are there, and no more.
-- Parameters: none.
SELECT kind, name, who, seconds, behind, active
FROM (
    SELECT
        CASE WHEN a.state LIKE 'idle in transaction%%' THEN 'idle in transaction'
            ELSE 'transaction' END AS kind,
        a.pid::text AS name,
        concat_ws(' ', a.usename, nullif(a.application_name, ''), a.client_addr) AS who,
        extract(epoch FROM now() - CASE
            WHEN a.state LIKE 'idle in transaction%%' THEN a.state_change ELSE a.xact_start
        END)::double precision AS seconds,
        age(a.backend_xmin)::bigint AS behind,
        true AS active
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
        AND a.backend_type = 'client backend'
    UNION ALL
    SELECT
        'prepared transaction', p.gid, p.owner::text,
        extract(epoch FROM now() - p.prepared)::double precision, age(p.transaction)::bigint, true
    FROM pg_prepared_xacts AS p
    WHERE p.database = current_database()
    UNION ALL
    SELECT
        'replication slot', s.slot_name::text, s.slot_type, NULL,
        greatest(age(s.xmin), age(s.catalog_xmin))::bigint, s.active
    FROM pg_replication_slots AS s
    UNION ALL
    SELECT
        'standby', r.pid::text, concat_ws(' ', r.usename, r.application_name, r.client_addr), NULL,
        age(r.backend_xmin)::bigint, true
    FROM pg_stat_replication AS r
    WHERE r.backend_xmin IS NOT NULL
) AS h
ORDER BY h.seconds DESC NULLS LAST, h.behind DESC NULLS LAST;
