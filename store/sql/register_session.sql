-- register_session: a supervisor begins a life. Committed synchronously before its first claim.
-- Guard: the id is random; a second insert of the same id fails.
-- Parameters: session, host, machine_id, boot_id, pid_namespace, pid, pid_start, version, slots,
--   queues (NULL: all), types, lease (seconds).
INSERT INTO session (id, host, machine_id, boot_id, pid_namespace, pid, pid_start, version, slots,
                     queues, types, expires_at)
VALUES (%(session)s, %(host)s, %(machine_id)s, %(boot_id)s, %(pid_namespace)s, %(pid)s,
        %(pid_start)s, %(version)s, %(slots)s, %(queues)s::text[], %(types)s::text[],
        clock_timestamp() + make_interval(secs => %(lease)s));
