"""Jobs with limits, settled without a supervisor: the real statements over plain connections."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.outcomes import UNREGISTERED, Cause, decide
from tests.claiming import Connection, run

#: A failure comes back at once, and a job can be dead after some attempts.
POLICY = replace(UNREGISTERED, min_backoff_seconds=0.0, max_backoff_seconds=0.0, max_attempts=3)


def set_limit(connection: Connection, key: str, running: int | None = None, **more: Any) -> None:
    """What `jobctl limits set` does."""
    options = {"max_running": running, **more}
    words = "".join(f", {name} => %({name})s" for name in options)
    connection.execute(f"SELECT set_limit(%(key)s{words})".encode(), {"key": key, **options})


def admit(connection: Connection) -> int:
    """What a dispatcher does before it claims. How many were let in."""
    ((moved, _),) = run(connection, "admit")
    return int(moved)


def end(connection: Connection, claims: Iterable[Claimed], cause: Cause) -> dict[int, str]:
    """Where each job went."""
    endings = [
        decide(one.job_id, one.session_id, one.token, one, POLICY, cause, 0.0).to_dict()
        for one in claims
    ]
    jobs = [ending["job_id"] for ending in endings]
    rows = run(connection, "settle_ended", jobs=jobs, endings=json.dumps(endings))
    return {row[0]: row[2] for row in rows}


def held(connection: Connection, key: str) -> int:
    """How many places of this key are held."""
    return _count(connection, "SELECT count(*) FROM place WHERE limit_key = %s", key)


def waiting(connection: Connection, key: str) -> int:
    """How many jobs wait for this key."""
    return _count(connection, "SELECT count(*) FROM blocked WHERE limit_key = %s", key)


def _count(connection: Connection, query: str, key: str) -> int:
    row = connection.execute(query.encode(), (key,)).fetchone()
    assert row is not None
    return int(row[0])
