"""Jobs that stand where a test wants them, put there as the statements of the supervisor would."""

from __future__ import annotations

from typing import Any

import psycopg

from jobctl.store.reading import Connection

_PUT = {
    "queued": "INSERT INTO ready (queue, priority, job_id) SELECT queue, priority, id FROM job"
    " WHERE id = %(id)s",
    "scheduled": "INSERT INTO scheduled (run_at, job_id) VALUES (now() + interval '1 h', %(id)s)",
    "retrying": "INSERT INTO scheduled (run_at, job_id, retry)"
    " VALUES (now() + interval '1 h', %(id)s, true)",
    "running": "INSERT INTO claim (job_id, session_id, token, claimed_at, deadline_at)"
    " VALUES (%(id)s, 1, %(id)s, now(), now() + interval '1 h')",
    "blocked": "INSERT INTO blocked (job_id, reason) VALUES (%(id)s, 'parent')",
    "dead": "INSERT INTO dead (job_id) VALUES (%(id)s)",
}

_FINISH = """
    WITH gone AS (DELETE FROM job WHERE id = %(id)s RETURNING *)
    INSERT INTO history (id, type, queue, priority, key, subject, args, schema_version, attempt,
                         crashes, run_at, created_at, finished_at, state)
    SELECT id, type, queue, priority, key, subject, args, schema_version, attempt, crashes, run_at,
           created_at, clock_timestamp(), %(state)s
    FROM gone
"""

_ENQUEUE = """
    SELECT enqueue(%(type)s, %(args)s::jsonb, key => %(key)s, subject => %(subject)s,
                   queue => %(queue)s) AS id
"""


def put(
    connection: Connection,
    state: str = "queued",
    *,
    type: str = "send",
    queue: str = "mail",
    key: str | None = None,
    subject: str | None = None,
    args: str = "{}",
    **columns: Any,
) -> int:
    """Enqueues a job and moves it to its place; `columns` are then written into its row."""
    row = connection.execute(
        _ENQUEUE, {"type": type, "args": args, "key": key, "subject": subject, "queue": queue}
    ).fetchone()
    assert row is not None
    job_id = int(row["id"])
    for name, value in columns.items():
        column = psycopg.sql.Identifier(name)
        statement = psycopg.sql.SQL("UPDATE job SET {} = %s WHERE id = %s").format(column)
        connection.execute(statement, (value, job_id))
    if state != "queued":
        connection.execute("DELETE FROM ready WHERE job_id = %s", (job_id,))
        connection.execute(_PUT.get(state, _FINISH), {"id": job_id, "state": state})
    return job_id


def put_session(connection: Connection, session: int, host: str = "alpha", **columns: Any) -> int:
    """A supervisor with a lease of a minute."""
    connection.execute(
        "INSERT INTO session (id, host, pid, version, slots, ready, expires_at)"
        " VALUES (%s, %s, 1, '0.1', 8, 8, now() + interval '1 min')",
        (session, host),
    )
    for name, value in columns.items():
        column = psycopg.sql.Identifier(name)
        statement = psycopg.sql.SQL("UPDATE session SET {} = %s WHERE id = %s").format(column)
        connection.execute(statement, (value, session))
    return session


def violations(connection: Connection) -> list[dict[str, Any]]:
    """Jobs that are not in exactly one place; none, always."""
    return connection.execute("SELECT * FROM placement_violations()").fetchall()
