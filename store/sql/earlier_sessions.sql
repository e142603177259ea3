-- earlier_sessions: lives of supervisors on this host that have not ended in order.
-- Which of them are proven dead is for the caller to say: it knows its own processes.
-- Parameters: host, session.
SELECT id, machine_id, boot_id, pid_namespace, pid, pid_start
FROM session
WHERE host = %(host)s AND id <> %(session)s AND NOT dead;
