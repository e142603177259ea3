"""The leader's smaller duties, each a step on a real database."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from jobctl.store import reading
from jobctl.store.dsn import conninfo
from jobctl.store.link import Link, Row
from jobctl.store.statements import sql
from jobctl.supervisor.duties import (
    AMNESTY_SECONDS,
    GAUGES_SECONDS,
    Gauges,
    Housekeeping,
    Reaper,
    promote,
)
from jobctl.supervisor.leases import boottime
from jobctl.supervisor.settle import Settlement
from tests.store.standing import put


class Told:
    """What the supervisor would hear."""

    def __init__(self) -> None:
        self.gauges: list[Row] = []
        self.unrunnable: list[Row] = []

    def on_gauges(self, rows: list[Row]) -> None:
        self.gauges = rows

    def on_unrunnable(self, rows: list[Row]) -> None:
        self.unrunnable = rows

    def on_oldest_transaction(self, seconds: float) -> None:
        assert seconds >= 0

    def on_paused(self, queues: list[str]) -> None:
        self.paused = queues

    def on_places_mended(self, places: int) -> None:
        self.mended = places

    def on_limits(self, rows: list[Row]) -> None:
        self.limits = rows

    def on_stuck(self, jobs: int) -> None:
        self.stuck = jobs

    def on_tables(self, rows: list[Row]) -> None:
        self.tables = rows


class Judged(Told):
    """What the reaper asks and tells."""

    def __init__(self) -> None:
        super().__init__()
        self.away_at = float("-inf")
        self.expired: list[str] = []
        self.steps: list[float] = []
        self.settled: list[Settlement] = []

    def database_was_away_at(self) -> float:
        return self.away_at

    def on_sessions_expired(self, hosts: list[str]) -> None:
        self.expired += hosts

    def on_clock_set(self, seconds: float) -> None:
        self.steps.append(seconds)

    def settle(self, settlement: Settlement) -> None:
        self.settled.append(settlement)

    def pending(self, session: int, token: int) -> bool:
        return False


PATIENCE = 0.5  # seconds of amnesty in these tests: a lease, and nothing added


def reaper(fleet: Judged, clock: Callable[[], float] = boottime) -> Reaper:
    return Reaper(fleet, PATIENCE - AMNESTY_SECONDS, clock)  # type: ignore[arg-type]


def register(connection: psycopg.Connection, renewed: str, lease: str = "1 min") -> None:
    """A session that was renewed then."""
    connection.execute(
        "INSERT INTO jobctl.session (id, host, pid, version, slots, renewed_at, expires_at)"
        " SELECT 1, 'one', 1, '0', 1, t, t + %s::interval"
        " FROM (SELECT now() + %s::interval AS t) AS x",
        (lease, renewed),
    )


def step(dsn: str, do: Callable[[Link], Awaitable[Any]]) -> Any:
    async def play() -> Any:
        link = Link("lead", conninfo(dsn, schema="jobctl", application_name="duty"), {})
        await link.connect()
        try:
            return await do(link)
        finally:
            await link.close()

    return asyncio.run(play())


def test_what_is_due_is_promoted_although_no_dispatcher_does_it(database: str) -> None:
    """And what is not due is not even looked at, however much there is of it."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = jobctl")
        connection.execute(
            "SELECT enqueue('t', delay => make_interval(days => d))"
            " FROM generate_series(1, 50) AS d"
        )
        connection.execute("UPDATE scheduled SET run_at = now() WHERE job_id <= 3")
        assert step(database, promote) is None
        moved = connection.execute("SELECT count(*) FROM ready").fetchone()
        assert moved == (3,)


def test_promotion_stops_at_the_first_that_is_not_due(database: str) -> None:
    """A plan that walks through the future would take seconds with a million jobs in it."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = jobctl")
        connection.execute(
            "INSERT INTO scheduled (run_at, job_id)"
            " SELECT now() + make_interval(hours => g), g FROM generate_series(1, 20000) AS g"
        )
        connection.execute("ANALYZE scheduled")
        explain = b"EXPLAIN (ANALYZE, TIMING off) " + sql("promote").encode()
        rows = connection.execute(explain, {"most": 100, "within": None})
        text = "\n".join(row[0] for row in rows)
        assert "Total" in text or "Execution" in text
        removed = re.findall(r"Rows Removed by Filter: (\d+)", text)
        assert all(int(count) < 10 for count in removed), text


def test_types_that_nobody_knows_are_reported(database: str) -> None:
    told = Told()
    gauges = Gauges(told)  # type: ignore[arg-type]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = jobctl")
        connection.execute("INSERT INTO lane VALUES ('default', 0, 'type:x@1', 'x', 1)")
        connection.execute(
            "INSERT INTO ready (queue, priority, lane, job_id) VALUES ('default', 0, 'type:x@1', 1)"
        )
    step(database, gauges.unrunnable)
    ((type_, version, queue, jobs, because),) = told.unrunnable
    assert (type_, version, queue, jobs) == ("x", 1, "default", 1)
    assert "no live supervisor" in because


def test_counting_is_the_rarer_the_longer_it_takes(database: str) -> None:
    told = Told()
    gauges = Gauges(told)  # type: ignore[arg-type]

    async def slowly(link: Link) -> float:
        run = link.run

        async def slow(statement: str, **parameters: Any) -> list[Row]:
            await asyncio.sleep(0.6)  # a great backlog
            return await run(statement, **parameters)

        link.run = slow  # type: ignore[method-assign, assignment]
        return await gauges.step(link)

    assert step(database, gauges.step) == GAUGES_SECONDS
    assert 22 < step(database, slowly) < 60


def test_nobody_is_judged_before_all_had_time_to_come_back(database: str) -> None:
    """The amnesty, from the last moment at which PostgreSQL was away from this host."""
    fleet = Judged()
    fleet.away_at = boottime()
    judge = reaper(fleet)
    with psycopg.connect(database, autocommit=True) as connection:
        register(connection, "-1 hour")

        async def twice(link: Link) -> None:
            await judge.step(link)
            assert fleet.expired == []
            fleet.away_at -= PATIENCE
            await judge.step(link)

        step(database, twice)
    assert fleet.expired == ["one"]


def test_the_databases_clock_is_set_forward(database: str) -> None:
    """Leases are over that were not: an amnesty. Deadlines move along, those of before only."""
    fleet = Judged()
    behind = 0.0
    judge = reaper(fleet, lambda: boottime() - behind)
    with psycopg.connect(database, autocommit=True) as connection:
        register(connection, "-1 hour")
        connection.execute("SET search_path = jobctl")
        connection.execute(
            "INSERT INTO claim VALUES (1, 1, 1, now() - interval '1 hour', now() - interval '1 s'),"
            " (2, 1, 2, now() + interval '1 hour', now() + interval '2 hours')"
        )

        async def twice(link: Link) -> None:
            nonlocal behind
            fleet.away_at = boottime()
            await judge.step(link)
            fleet.away_at = float("-inf")
            behind = 3600.0  # what the database's clock looks like to whoever did not jump
            await judge.step(link)

        step(database, twice)
        assert fleet.expired == []
        (seconds,) = fleet.steps
        assert 3599 < seconds < 3601
        rows = connection.execute(
            "SELECT job_id, round(extract(epoch FROM deadline_at - now()) / 3600)::int FROM claim"
        ).fetchall()
        assert rows == [(2, 2), (1, 1)]


def test_a_lease_of_the_future_begins_now(database: str) -> None:
    """The clock was set back; a host that died just then would keep its jobs for the difference."""
    fleet = Judged()
    with psycopg.connect(database, autocommit=True) as connection:
        register(connection, "1 hour")
        step(database, reaper(fleet).step)
        row = connection.execute(
            "SELECT renewed_at <= clock_timestamp(),"
            " round(extract(epoch FROM expires_at - renewed_at))::int FROM jobctl.session"
        ).fetchone()
        assert row == (True, 60)
    assert fleet.expired == []


def test_a_running_jobs_row_was_deleted_by_hand(database: str) -> None:
    """Its claim is a claim of nothing: it is swept, so that its session can be forgotten; a claim
    of a job that is there is not touched."""
    with reading.connect(database, "jobctl") as connection:
        there = put(connection, state="running")
        orphan = put(connection, state="running")
        connection.execute("DELETE FROM job WHERE id = %s", (orphan,))

        def claimed() -> list[int]:
            return [row["job_id"] for row in connection.execute("SELECT job_id FROM claim")]

        assert sorted(claimed()) == [there, orphan]
        step(database, Housekeeping(3600.0, 3600.0).sweep)
        assert claimed() == [there]
