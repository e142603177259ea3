"""The leader's smaller duties, each a step on a real database."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from jobctl.store.dsn import conninfo
from jobctl.store.link import Link, Row
from jobctl.store.statements import sql
from jobctl.supervisor.duties import GAUGES_SECONDS, Gauges, promote


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
        rows = connection.execute(explain, {"most": 100})
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
