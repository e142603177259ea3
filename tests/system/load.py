"""A steady load on some hosts, and what became of each of its jobs.

Waiting is measured from outside: from the enqueue's transaction to the handler's first line, on one
machine and one clock. What jobs write down and what the database says must agree.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from psycopg.rows import dict_row

#: How long a handler takes, in seconds.
SHORTEST, LONGEST = 0.05, 0.5
#: Connections that enqueue; one alone could wait for the disk too long to keep its pace.
CLIENTS = 4


def prepare(folder: Path, version: int) -> None:
    """What the handlers of `busy` need in the folder where they meet."""
    (folder / "locks").mkdir(exist_ok=True)
    deploy(folder, version)


def deploy(folder: Path, version: int) -> None:
    """New code: whoever imports the app from now on is this version."""
    new = folder / "version.new"
    new.write_text(str(version))
    new.rename(folder / "version")


class Producer:
    """Enqueues so many jobs a second, each in a transaction of its own, until it is told to end."""

    def __init__(
        self, dsn: str, rate: float, args: Callable[[Random], dict[str, Any]], seed: int = 1
    ) -> None:
        self.ids: list[int] = []
        self._failed: BaseException | None = None
        self._ends = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._run, args=(dsn, rate / CLIENTS, args, Random(seed + number))
            )
            for number in range(CLIENTS)
        ]

    def start(self) -> None:
        """From now on."""
        self._begun = time.monotonic()
        for thread in self._threads:
            thread.start()

    def mark(self) -> int:
        """Jobs that come after this belong to what begins now."""
        return len(self.ids)

    def rate(self) -> float:
        """How many a second it came to."""
        return len(self.ids) / (time.monotonic() - self._begun)

    def end(self) -> None:
        """Enqueues nothing more. Raises what it failed with."""
        self._ends.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(
        self, dsn: str, rate: float, args: Callable[[Random], dict[str, Any]], chance: Random
    ) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                due = time.monotonic() + chance.random() / rate
                while not self._ends.wait(max(0.0, due - time.monotonic())):
                    due += 1 / rate
                    self.ids.append(_enqueue(connection, args(chance)))
        except BaseException as error:
            self._failed = error


def _enqueue(connection: psycopg.Connection[Any], args: dict[str, Any]) -> int:
    row = connection.execute(
        "SELECT jobctl.enqueue('work', %s::jsonb)", (json.dumps(args),)
    ).fetchone()
    assert row is not None
    return int(row[0])


def plain(chance: Random) -> dict[str, Any]:
    """A job that only takes its time."""
    return {"seconds": round(chance.uniform(SHORTEST, LONGEST), 3)}


@dataclass
class Diary:
    """What the handlers have written down."""

    began: dict[int, list[float]] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    doubles: list[int] = field(default_factory=list)
    versions: dict[int, str] = field(default_factory=dict)  # of the last run

    @classmethod
    def read(cls, folder: Path) -> Diary:
        """As it stands now."""
        diary = cls()
        for line in (folder / "diary").read_text().splitlines():
            word, job, _, version, at = line.split()
            match word:
                case "began":
                    diary.began.setdefault(int(job), []).append(float(at))
                    diary.versions[int(job)] = version
                case "ended":
                    diary.ended[int(job)] = diary.ended.get(int(job), 0) + 1
                case "double":
                    diary.doubles.append(int(job))
        return diary


@dataclass(frozen=True)
class Figures:
    """Of some jobs. Seconds."""

    jobs: int
    lost: int  # not succeeded
    spent: int  # attempts beyond the first of each
    interrupted: int  # attempts that were begun and given back
    doubles: int  # ran twice at the same time
    again: int  # ran to their end more than once
    p50: float
    p95: float
    p99: float
    worst: float

    def wrong(self) -> list[str]:
        """What must not be, whatever happened to the hosts, in words."""
        found = []
        if self.lost:
            found.append(f"{self.lost} jobs are lost")
        if self.doubles:
            found.append(f"{self.doubles} jobs ran twice at the same time")
        return found


def figures(connection: psycopg.Connection[Any], diary: Diary, ids: Sequence[int]) -> Figures:
    """What became of these."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            "SELECT id, state, attempt, extract(epoch FROM created_at)::float8 AS due "
            "FROM jobctl.jobs WHERE id = ANY(%s)",
            (list(ids),),
        ).fetchall()
        interrupted = cursor.execute(
            "SELECT count(*) AS many FROM jobctl.attempts "
            "WHERE outcome = 'interrupted' AND job_id = ANY(%s)",
            (list(ids),),
        ).fetchone()
    assert interrupted is not None
    succeeded = {row["id"] for row in rows if row["state"] == "succeeded"}
    # Until its first run; what comes after a failure is a backoff.
    waits = sorted(
        diary.began[row["id"]][0] - row["due"] for row in rows if row["id"] in diary.began
    )
    mine = set(ids)
    return Figures(
        jobs=len(ids),
        lost=len(mine - succeeded),
        spent=sum(max(0, row["attempt"] - 1) for row in rows),
        interrupted=interrupted["many"],
        doubles=sum(job in mine for job in diary.doubles),
        again=sum(many > 1 for job, many in diary.ended.items() if job in mine),
        p50=_share(waits, 0.5),
        p95=_share(waits, 0.95),
        p99=_share(waits, 0.99),
        worst=_share(waits, 1.0),
    )


def _share(values: Sequence[float], share: float) -> float:
    """The smallest that so many are not above."""
    if not values:
        return float("nan")
    return values[min(len(values) - 1, int(share * len(values)))]
