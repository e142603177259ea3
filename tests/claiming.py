"""Claims without a supervisor: the real statements, over a plain connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from time import monotonic_ns
from typing import Any

import psycopg

from jobctl.store.dsn import conninfo
from jobctl.store.link import DISPATCH_SETTINGS
from jobctl.store.statements import sql
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.lanes import PRIORITIES
from tests.databases import SCHEMA

Connection = psycopg.Connection[tuple[Any, ...]]

#: Longer than any test.
BACKSTOP_SECONDS = 3600.0

_tokens = count(1)


def where(dsn: str, name: str = "jobctl test") -> str:
    """As the supervisor's connections find the schema."""
    return conninfo(dsn, schema=SCHEMA, application_name=name)


def connect(
    dsn: str, settings: Mapping[str, str] = DISPATCH_SETTINGS, name: str = "jobctl test"
) -> Connection:
    """An autocommit connection with the settings of the dispatcher's."""
    connection = psycopg.connect(where(dsn, name), autocommit=True, prepare_threshold=0)
    for key, value in settings.items():
        connection.execute("SELECT set_config(%s, %s, false)", (key, value))
    return connection


def run(connection: Connection, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """The statement of this name."""
    cursor = connection.execute(sql(statement), parameters)
    return cursor.fetchall() if cursor.description else []


def enqueue(connection: Connection, many: int = 1, type: str = "t", **options: Any) -> list[int]:
    """So many jobs; their ids."""
    words = "".join(f", {name} => %({name})s" for name in options)
    text = f"SELECT enqueue(%(type)s, '{{}}'{words}) FROM generate_series(1, %(many)s)"  # noqa: S608
    rows = connection.execute(text.encode(), {"type": type, "many": many, **options}).fetchall()
    return [job for (job,) in rows]


def register(connection: Connection, session: int, lease: float = 60.0, host: str = "a") -> int:
    """A session with a lease."""
    run(
        connection, "register_session", session=session, host=host, machine_id="m", boot_id="b",
        pid_namespace="p", pid=1, pid_start=1, version="0", slots=4, queues=None, types=[],
        lease=lease,
    )  # fmt: skip
    return session


def lanes(connection: Connection) -> list[tuple[str, int, str]]:
    """Every lane of every queue, in an order that a dispatcher could choose."""
    found = run(connection, "read_lanes")
    queues = sorted({row[0] for row in found})
    of_types = [row[:3] for row in found if row[2] is not None]
    own = [(q, p, name) for p in PRIORITIES for q in queues for name in ("front", "")]
    return [*own, *of_types]


def claim(
    connection: Connection,
    session: int,
    most: int = 1000,
    only: Sequence[tuple[str, int, str]] | None = None,
    backstop: float = BACKSTOP_SECONDS,
    text: str | None = None,
) -> list[Claimed]:
    """Claims from all lanes, from 0; by the order of their numbers. `text`: another statement."""
    asked = lanes(connection) if only is None else only
    first = next(_tokens)
    for _ in range(most):
        next(_tokens)
    parameters = {
        "queues": [queue for queue, _, _ in asked],
        "priorities": [priority for _, priority, _ in asked],
        "lanes": [name for _, _, name in asked],
        "marks": [0] * len(asked),
        "limits": [most] * len(asked),
        "most": most,
        "session": session,
        "first_token": first,
        "backstop": backstop,
        "most_bytes": 2**20,
    }
    rows = connection.execute((text or sql("claim")).encode(), parameters).fetchall()
    claimed = [Claimed.from_row(session, monotonic_ns(), row) for row in rows]
    return sorted(claimed, key=lambda one: one.seq)


def succeed(
    connection: Connection, held: Sequence[Claimed], steps: Sequence[str | None] | None = None
) -> set[int]:
    """All of one session, perhaps with next steps; the ids of those that were settled."""
    rows = run(
        connection, "settle_succeeded", jobs=[one.job_id for one in held],
        tokens=[one.token for one in held], results=[None] * len(held), progress="{}",
        steps=steps or [None] * len(held), most_bytes=None, session=held[0].session_id,
    )  # fmt: skip
    return {row[0] for row in rows}


def states(connection: Connection) -> dict[int, str]:
    """The view's word for every job."""
    return {row[0]: row[1] for row in connection.execute("SELECT id, state FROM jobs")}


def violations(connection: Connection) -> list[tuple[Any, ...]]:
    """Jobs that are not in exactly one place: none, always."""
    return connection.execute("SELECT * FROM placement_violations()").fetchall()
