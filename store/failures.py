"""Dead jobs by their errors: what two thousand failures have in common.

The groups were named when the jobs died (`error_group.py`); here they are counted, over the dead
jobs that died last and no more, so that a million of them cost what a hundred thousand do. What a
group is about is read from its newest member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobctl.store.error_group import ErrorGroup, group_of
from jobctl.store.reading import LARGEST_COUNT, UNGROUPED, Connection, JobFilter, Row, one_moment
from jobctl.store.statements import sql

SAMPLES = 5


@dataclass(frozen=True)
class Window:
    """How many dead jobs were looked at; `capped`: there may be older ones, which were not."""

    jobs: int
    capped: bool
    back_to: datetime | None


def groups(
    connection: Connection, wanted: JobFilter, most: int, *, window: int = LARGEST_COUNT
) -> tuple[list[Row], Window]:
    """The largest groups of the dead jobs that match, at most `most`, and what was looked at.

    Each has `group`, `error_class`, `error_code`, `message`, `frame`, `jobs`, `first_seen`,
    `last_seen`, `types` and `samples` (ids, the newest first). Those that have no group, UNGROUPED,
    may have died of different things: what is said of them is true of the newest.
    """
    asked = {**wanted.parameters(), "most": window, "groups": most, "samples": SAMPLES}
    with one_moment(connection):
        (counted,) = connection.execute(sql("count_dead"), asked).fetchall()
        rows = connection.execute(sql("read_error_groups"), asked).fetchall()
        failures = _failures(connection, [job_id for row in rows for job_id in row["samples"]])
    seen = Window(counted["jobs"], counted["capped"], counted["back_to"])
    return [_described(row, failures) for row in rows], seen


def _described(row: Row, failures: dict[int, Row]) -> Row:
    known = [failures[job_id] for job_id in row["samples"] if job_id in failures]
    about = _group_of(known[0]) if known else ErrorGroup("", "unknown", None, "", "")
    return {
        "group": row["error_group"] or UNGROUPED,
        "error_class": about.error_class,
        "error_code": about.error_code,
        "message": about.message,
        "frame": about.frame or None,
        "jobs": row["jobs"],
        "first_seen": row["first_seen"],
        "last_seen": row["last_seen"],
        "types": sorted({one["type"] for one in known}),
        "samples": row["samples"],
    }


def _group_of(failure: Row) -> ErrorGroup:
    return group_of(
        failure["failure_class"],
        failure["last_error_code"],
        failure["last_error"],
        failure["stack"],
    )


def _failures(connection: Connection, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    rows = connection.execute(sql("read_failures"), {"ids": list(ids)}).fetchall()
    return {row["id"]: row for row in rows}
