"""What was enqueued, asked on the test's own connection: also what is not committed yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobctl.store import callers
from jobctl.store.callers import Connection
from jobctl.workerproc.job import Job


@dataclass(frozen=True)
class Enqueued:
    """A job as it stands."""

    id: int
    type: str
    state: str
    args: dict[str, Any]
    queue: str
    priority: int
    key: str | None
    subject: str | None
    run_at: datetime


def enqueued(conn: Connection, job: Job[..., Any] | str | None = None, /) -> list[Enqueued]:
    """The jobs that are there and have not ended, of this type or of all, the oldest first.

    `conn` is any connection that `enqueue` takes, but no async one.
    """
    name = job.job_type.name if isinstance(job, Job) else job
    rows = callers.run(conn, callers.in_schema("testing_enqueued"), {"type": name})
    return [Enqueued(*(*row[:3], json.loads(row[3]), *row[4:])) for row in rows]


def assert_enqueued(
    conn: Connection, job: Job[..., Any] | str, /, *, times: int = 1, **expected: Any
) -> list[Enqueued]:
    """Asserts that so many jobs of this type were enqueued, and returns them.

    `expected` are what they must have: `key`, `subject`, `queue`, `priority`, `state`; everything
    else is an argument of the handler. Raises AssertionError, which shows what there is instead.
    """
    every = enqueued(conn, job)
    found = [one for one in every if _matches(one, expected)]
    if len(found) == times:
        return found
    name = job.job_type.name if isinstance(job, Job) else job
    wanted = "".join(f" {field}={value!r}" for field, value in expected.items())
    there = "".join(f"\n  {one}" for one in every[:20]) or " none of this type"
    raise AssertionError(
        f"{len(found)} of {name}{wanted} are enqueued, not {times}; there are:{there}"
    )


def _matches(one: Enqueued, expected: Mapping[str, Any]) -> bool:
    for name, value in expected.items():
        has = getattr(one, name) if name in _FIELDS else one.args.get(name, _ABSENT)
        if has != value:
            return False
    return True


_FIELDS = frozenset(("key", "subject", "queue", "priority", "state"))
_ABSENT = object()
