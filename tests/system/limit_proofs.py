"""What limits cost and how well they are kept, in figures: `make limits`, some minutes.

Each figure is a ratio of two runs on one server, in turn, and is held against what was promised;
the exit code says whether all hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

import jobctl
from jobctl.bench import app as bench_app
from jobctl.store.embedded import throw_away
from jobctl.store.migrate import migrate
from jobctl.store.statements import sql
from tests import claiming
from tests.system.host import Hosts
from tests.system.times import noted
from tests.waiting import until

Connection = psycopg.Connection[tuple[Any, ...]]

SLOTS = 8
CHUNK = 5_000
#: One drain takes seconds, and differs by a fifth from the next: so many of each kind.
ROUNDS = 7


def main() -> int:
    """Runs the proofs and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=30_000, help="of each drain")
    parser.add_argument("--waiting", type=int, default=200_000, help="jobs of a stopped key")
    parser.add_argument("--seconds", type=int, default=60, help="of the rate")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    figures: dict[str, float] = {}
    for proof, size in (
        (throughput, asked.jobs), (beside_many, asked.waiting), (rate, asked.seconds),
    ):  # fmt: skip
        found = proof(size)
        figures.update(found)
        sys.stderr.write(f"{found}\n")
    promised = {
        "one_key_ratio": (0.8, None),
        "thousand_keys_ratio": (0.6, None),
        "others_ratio": (0.9, None),
        "claim_buffers_ratio": (None, 1.2),
        "rate_error": (None, 0.02),
        "most_in_a_second": (None, RATE + BURST),
        "doubles": (None, 0),
    }
    broken = [
        name
        for name, (least, most) in promised.items()
        if (least is not None and figures[name] < least)
        or (most is not None and figures[name] > most)
    ]
    if asked.json:
        sys.stdout.write(json.dumps({**figures, "broken": broken}, indent=2) + "\n")
    else:
        for name, value in figures.items():
            mark = "   <- not as promised" if name in broken else ""
            sys.stdout.write(f"{name:28} {value}{mark}\n")
    return 1 if broken else 0


# Throughput --------------------------------------------------------------------------------------


def throughput(jobs: int) -> dict[str, float]:
    """No-op jobs without a limit, with one that does not bind, with a thousand keys: in turn, so
    that a machine which is slow for a while is slow for all three; medians of ROUNDS each."""
    kinds: dict[str, Callable[[int], str | None]] = {
        "no_limit": lambda at: None,
        "one_key": lambda at: "bench:all",
        "thousand_keys": lambda at: f"bench:{at % 1000}",
    }
    speeds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):
        for kind, key in kinds.items():
            with _database() as (dsn, folder, connection):
                connection.execute("SELECT jobctl.set_limit('bench:*', 1000)")
                _enqueue(connection, jobs, key)
                speeds[kind].append(_drain(dsn, folder, connection, jobs))
    usual = {kind: median(found) for kind, found in speeds.items()}
    return {
        **{f"{kind}_jobs_per_second": round(speed) for kind, speed in usual.items()},
        "one_key_ratio": round(usual["one_key"] / usual["no_limit"], 2),
        "thousand_keys_ratio": round(usual["thousand_keys"] / usual["no_limit"], 2),
    }


def _enqueue(connection: Connection, jobs: int, key: Callable[[int], str | None]) -> None:
    for first in range(0, jobs, CHUNK):
        many = range(first, min(first + CHUNK, jobs))
        jobctl.enqueue_many(
            connection, [bench_app.bench_noop.item(a=at, limit=key(at)) for at in many]
        )


def _drain(dsn: str, folder: Path, connection: Connection, jobs: int) -> float:
    connection.execute("VACUUM ANALYZE")
    connection.execute("CHECKPOINT")
    hosts = Hosts(dsn, folder)
    hosts.start("bench", "--slots", str(SLOTS), app=bench_app.__name__)
    try:
        done = "SELECT NOT EXISTS (SELECT FROM jobctl.job)"
        until(lambda: connection.execute(done).fetchone() == (True,), within=600, what="the drain")
    finally:
        hosts.end()
    row = connection.execute(
        "SELECT count(*), extract(epoch FROM max(finished_at) - min(started_at))::float"
        " FROM jobctl.history"
    ).fetchone()
    assert row is not None
    assert row[0] == jobs
    return float(row[0] / row[1])


# Others beside a key that many wait for -----------------------------------------------------------


def beside_many(waiting: int) -> dict[str, float]:
    """A thousand jobs of 100 ms on 24 slots, alone, and behind all those of a key with one place,
    which one slot is busy with. What a claim reads is compared with as many jobs that are not due:
    a larger table costs a page of its index more, whatever its jobs wait for."""
    alone = _beside(0)
    behind = _beside(waiting)
    with _database() as (dsn, _, connection):
        connection.execute(
            "SELECT count(jobctl.enqueue('call_partner', delay => '1 day'))"
            " FROM generate_series(1, %s)",
            (waiting,),
        )
        connection.execute("VACUUM ANALYZE")
        later = _claim_buffers(dsn)
    with _database() as (dsn, _, connection):
        connection.execute("SELECT jobctl.set_limit('partner', 1)")
        _fill(connection, waiting)
        blocked = _claim_buffers(dsn)
    return {
        "others_alone_per_second": round(alone),
        "others_behind_per_second": round(behind),
        "others_ratio": round(behind / alone, 2),
        "claim_buffers_not_due": later,
        "claim_buffers_behind": blocked,
        "claim_buffers_ratio": round(blocked / later, 2),
    }


def _beside(waiting: int) -> float:
    """Jobs a second."""
    with _database() as (dsn, folder, connection):
        connection.execute("SELECT jobctl.set_limit('partner', 1)")
        _fill(connection, waiting)
        hosts = Hosts(dsn, folder)
        hosts.start("one", "--slots", "24", app="limited").ready()
        try:
            until(lambda: _holds(connection) or not waiting, within=60, what="the one place")
            jobs = _thousand(connection)
            until(lambda: _left(connection, jobs) == 0, within=300, what="the thousand")
        finally:
            hosts.end()
        return _speed(connection, jobs)


def _fill(connection: Connection, jobs: int) -> None:
    """The first of them keeps the place for as long as this takes."""
    if jobs:
        connection.execute(
            "SELECT count(jobctl.enqueue('call_partner', jsonb_build_object('seconds', 600),"
            " limit_key => 'partner')) FROM generate_series(1, %s)",
            (jobs,),
        )
    connection.execute("VACUUM ANALYZE")


def _thousand(connection: Connection) -> list[int]:
    rows = connection.execute(
        "SELECT jobctl.enqueue('sleep_a_little') FROM generate_series(1, 1000)"
    ).fetchall()
    return [job for (job,) in rows]


def _claim_buffers(dsn: str) -> int:
    """Pages that one claim of sixteen reads, beside all who wait; rolled back."""
    with claiming.connect(dsn) as host:
        claiming.register(host, 5)
        claiming.enqueue(host, 16, "sleep_a_little")
        with host.transaction(force_rollback=True):
            lanes = claiming.lanes(host)
            host.execute("SET LOCAL enable_seqscan = off")
            rows = host.execute(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql('claim')}".encode(),
                {
                    "queues": [lane[0] for lane in lanes],
                    "priorities": [lane[1] for lane in lanes],
                    "lanes": [lane[2] for lane in lanes], "marks": [0] * len(lanes),
                    "limits": [16] * len(lanes), "most": 16, "session": 5, "first_token": 1,
                    "backstop": 60.0, "most_bytes": 2**20,
                },
            ).fetchall()  # fmt: skip
        plan = rows[0][0][0]["Plan"]
        host.execute("DELETE FROM ready")
        host.execute("DELETE FROM job WHERE type = 'sleep_a_little'")
        host.execute("DELETE FROM session")
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _holds(connection: Connection) -> bool:
    return connection.execute("SELECT FROM jobctl.claim").fetchone() is not None


def _left(connection: Connection, jobs: list[int]) -> int:
    row = connection.execute(
        "SELECT count(*) FROM jobctl.job WHERE id = ANY(%s)", (jobs,)
    ).fetchone()
    assert row is not None
    return int(row[0])


def _speed(connection: Connection, jobs: list[int]) -> float:
    row = connection.execute(
        "SELECT count(*) / extract(epoch FROM max(finished_at) - min(started_at))::float"
        " FROM jobctl.history WHERE id = ANY(%s)",
        (jobs,),
    ).fetchone()
    assert row is not None
    return float(row[0])


# A rate ------------------------------------------------------------------------------------------

RATE, BURST, HOSTS = 50, 5, 6


def rate(seconds: int) -> dict[str, float]:
    """Fifty a second over six supervisors: how many there were, and the most in any second."""
    with _database() as (dsn, folder, connection):
        connection.execute(
            "SELECT jobctl.set_limit('partner', per_seconds => 1.0 / %s, burst => %s)",
            (RATE, BURST),
        )
        hosts = Hosts(dsn, folder)
        try:
            started = [
                hosts.start(f"host{number}", "--slots", "2", app="limited")
                for number in range(HOSTS)
            ]
            for host in started:
                host.ready()
            many = RATE * seconds
            connection.execute(
                "SELECT count(jobctl.enqueue('call_partner')) FROM generate_series(1, %s)", (many,)
            )
            until(
                lambda: len(noted(folder)) >= many, within=seconds * 3, what="all of them to start"
            )
        finally:
            hosts.end()
        begins = sorted(began for _, began, _ in noted(folder))
        took = begins[-1] - begins[0]
        return {
            "rate_hosts": HOSTS,
            "rate_per_second": round((len(begins) - BURST) / took, 2),
            "rate_error": round(abs((len(begins) - BURST) / took / RATE - 1), 4),
            "most_in_a_second": max(_in_the_second_after(begins)),
            "doubles": len(begins) - len({job for job, _, _ in noted(folder)}),
        }


def _in_the_second_after(begins: list[float]) -> Iterator[int]:
    last = 0
    for first, at in enumerate(begins):
        while last < len(begins) and begins[last] < at + 1:
            last += 1
        yield last - first


@contextmanager
def _database() -> Iterator[tuple[str, Path, Connection]]:
    with throw_away() as server, tempfile.TemporaryDirectory(prefix="jobctl-limits-") as folder:
        migrate(server.dsn())
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            yield server.dsn(), Path(folder), connection


if __name__ == "__main__":
    sys.exit(main())
