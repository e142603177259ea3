"""A link notices every way in which its connection can be lost, in time, and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import psycopg
import pytest
from psycopg import errors

from jobctl.store.link import (
    COMMON_SETTINGS,
    DISPATCH_SETTINGS,
    FIRST_BACKOFF,
    LAST_BACKOFF,
    Link,
    Unreachable,
)
from tests.claiming import connect, where
from tests.proxy import Proxy, Wire
from tests.waiting import until

PATIENCE = 0.4
#: No test waits for this: it says that something did not hang.
SOON = 10.0


class Told:
    """What a link has said of itself."""

    def __init__(self) -> None:
        self.changes: list[str | None] = []
        self.statements: list[str] = []

    def on_change(self, link: str, error: str | None) -> None:
        assert link == "test"
        self.changes.append(error)

    def observe(self, statement: str, seconds: float) -> None:
        assert 0 <= seconds < SOON
        self.statements.append(statement)


def play(dsn: str, story: Callable[[Link, Told], Awaitable[None]]) -> None:
    async def scene() -> None:
        told = Told()
        link = Link("test", where(dsn), {}, told.observe, told.on_change, patience=PATIENCE)
        try:
            async with asyncio.timeout(6 * SOON):
                await story(link, told)
        finally:
            link.drop()

    asyncio.run(scene())


async def unreachable(statement: Awaitable[Any]) -> float:
    """That it is, and after how many seconds that was known."""
    begun = monotonic()
    with pytest.raises(Unreachable):
        await statement
    return monotonic() - begun


def one(link: Link) -> Awaitable[Any]:
    return link.execute("one", "SELECT 1")


async def fact(condition: Callable[[], bool]) -> None:
    """Waits until it holds, while the loop goes on."""
    await asyncio.to_thread(until, condition, SOON)


# Silence ------------------------------------------------------------------------------------------


def test_a_black_hole_is_given_up_within_the_deadline(database: str) -> None:
    """Everything is acknowledged and nothing answers: neither keepalives nor PostgreSQL's limits
    see that."""

    async def story(link: Link, told: Told) -> None:
        await link.ready()
        assert await one(link) == [(1,)]
        proxy.wire = Wire.BLACK_HOLE
        assert PATIENCE <= await unreachable(one(link)) < SOON
        assert not link.up
        assert await unreachable(one(link)) < PATIENCE
        proxy.wire = Wire.WORKS
        await link.ready()
        assert await one(link) == [(1,)]
        assert link.generation == 2
        assert [change is None for change in told.changes] == [False, True]

    with Proxy.to(database) as proxy:
        play(proxy.dsn, story)


def test_a_server_that_answers_nobody_is_given_up_when_connecting(database: str) -> None:
    async def story(link: Link, told: Told) -> None:
        proxy.wire = Wire.BLACK_HOLE
        assert PATIENCE <= await unreachable(link.connect()) < SOON
        trying = asyncio.create_task(link.ready())
        await fact(lambda: proxy.accepted >= 3)
        assert told.changes[1:] == []
        proxy.cut()
        proxy.wire = Wire.WORKS
        await trying
        assert await one(link) == [(1,)]
        assert [change is None for change in told.changes] == [False, True]

    with Proxy.to(database) as proxy:
        play(proxy.dsn, story)


def test_a_task_is_cancelled_at_once_in_a_black_hole(database: str) -> None:
    """A supervisor that is told to stop does not wait for a statement's deadline, nor for the
    answer to a cancel request."""

    async def story(link: Link, told: Told) -> None:
        await link.ready()
        link._patience = 1000.0
        proxy.wire = Wire.BLACK_HOLE
        asking = asyncio.create_task(link.execute("one", "SELECT 1"))
        await asyncio.sleep(0)
        begun = monotonic()
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        assert asking.cancelled()
        assert monotonic() - begun < 4  # psycopg waits for five seconds, twice
        assert not link.up

    with Proxy.to(database) as proxy:
        play(proxy.dsn, story)


def test_closing_does_not_wait_for_anybody(database: str) -> None:
    async def story(link: Link, told: Told) -> None:
        await link.ready()
        proxy.wire = Wire.BLACK_HOLE
        begun = monotonic()
        await link.close()
        assert monotonic() - begun < SOON
        assert not link.up
        await link.close()

    with Proxy.to(database) as proxy:
        play(proxy.dsn, story)


# Losses -------------------------------------------------------------------------------------------


def test_a_killed_server_process_is_a_lost_connection(database: str) -> None:
    """Whether it dies between statements or in the middle of one."""

    async def story(link: Link, told: Told) -> None:
        await link.ready()
        see.execute("SELECT pg_terminate_backend(%s)", (link.backend_pid(),))
        await unreachable(one(link))
        await link.ready()
        sleeping = asyncio.create_task(link.execute("sleep", "SELECT pg_sleep(60)"))
        asleep = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        await fact(lambda: see.execute(asleep).fetchone() is not None)
        see.execute("SELECT pg_terminate_backend(%s)", (link.backend_pid(),))
        await unreachable(sleeping)
        await link.ready()
        assert link.generation == 3
        assert len(told.changes) == 4

    with connect(database) as see:
        play(database, lambda link, told: _patiently(link, told, story))


def test_a_cut_wire_is_a_lost_connection(database: str) -> None:
    async def story(link: Link, told: Told) -> None:
        await link.ready()
        proxy.cut()
        await unreachable(one(link))
        await link.ready()
        assert await one(link) == [(1,)]

    with Proxy.to(database) as proxy:
        play(proxy.dsn, story)


def test_an_idle_link_that_is_cut_says_so_when_its_socket_is_read(database: str) -> None:
    async def story(link: Link, told: Told) -> None:
        await link.ready()
        await link.listen("somewhere")
        await _readable(link, proxy.cut)
        await fact(lambda: not link.take_notifications())
        assert not link.up
        assert link.descriptor() is None
        assert not link.take_notifications()
        assert len(told.changes) == 1

    with Proxy.to(database) as proxy:
        play(proxy.dsn, story)


def test_what_postgresql_refuses_costs_no_connection(database: str) -> None:
    async def story(link: Link, told: Told) -> None:
        await link.ready()
        with pytest.raises(errors.SyntaxError):
            await link.execute("wrong", "SELEC 1")
        with pytest.raises(errors.DivisionByZero):
            await link.execute("zero", "SELECT 1 / 0")
        with pytest.raises(errors.QueryCanceled):
            await link.execute("set", "SELECT set_config('statement_timeout', '50ms', false)")
            await link.execute("sleep", "SELECT pg_sleep(60)")
        with pytest.raises(psycopg.DataError):
            await link.execute("nul", "SELECT %(text)s", text="\0")
        assert await one(link) == [(1,)]
        assert link.generation == 1
        assert told.changes == []
        assert told.statements[-2:] == ["set", "one"]

    play(database, lambda link, told: _patiently(link, told, story))


def test_nobody_there_is_unreachable(database: str) -> None:
    """Refused at the door, and a database that does not exist."""

    async def story(link: Link, told: Told) -> None:
        await unreachable(link.connect())
        await unreachable(one(link))
        with pytest.raises(Unreachable):
            _ = link.connection
        assert link.generation == 0
        assert link.backend_pid() is None

    play("postgresql://jobctl@127.0.0.1:1/nobody?connect_timeout=2", story)
    play(database.replace("/tests", "/no_such_database"), story)


# Coming back --------------------------------------------------------------------------------------


def test_tries_are_spread_more_and_more_widely(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full jitter: between nothing and a limit that doubles up to the last; and from the first
    again after a connection that has lasted, not after one that did not."""
    limits: list[float] = []

    def chance(least: float, most: float) -> float:
        assert least == 0
        limits.append(most)
        if len(limits) == 9:
            proxy.wire = Wire.WORKS
        return 0.0

    async def story(link: Link, told: Told) -> None:
        link._patience = 0.02
        proxy.wire = Wire.BLACK_HOLE
        trying = asyncio.create_task(link.ready())
        await fact(lambda: len(limits) >= 9)
        link._patience = SOON
        await trying
        expected = [min(FIRST_BACKOFF * 2**n, LAST_BACKOFF) for n in range(9)]
        assert limits[:9] == expected
        assert expected[-1] == LAST_BACKOFF
        link._patience = 0.02
        for lasted, limit in ((0.0, LAST_BACKOFF), (LAST_BACKOFF, FIRST_BACKOFF)):
            seen = len(limits)
            proxy.wire = Wire.BLACK_HOLE
            link.connected_at -= lasted
            await unreachable(one(link))
            trying = asyncio.create_task(link.ready())
            await fact(lambda seen=seen: len(limits) > seen)  # type: ignore[misc]
            assert limits[seen] == limit
            link._patience, proxy.wire = SOON, Wire.WORKS
            await trying
            link._patience = 0.02

    monkeypatch.setattr("random.uniform", chance)
    with Proxy.to(database) as proxy:
        play(proxy.dsn, story)


@pytest.mark.parametrize("settings", [{}, DISPATCH_SETTINGS, {"synchronous_commit": "off"}])
def test_every_connection_has_the_settings(database: str, settings: dict[str, str]) -> None:
    """The first one and those after it."""

    async def scene() -> None:
        link = Link("test", where(database), settings)
        for _ in range(2):
            await link.ready()
            for name, value in {**COMMON_SETTINGS, **settings}.items():
                ((now,),) = await link.execute("show", "SELECT current_setting(%(n)s)", n=name)
                assert now == value
            link.drop()

    asyncio.run(scene())


# The bell -----------------------------------------------------------------------------------------


def test_notifications_come_while_nothing_runs_and_with_answers(database: str) -> None:
    """An odd name of a channel, and payloads as they were sent; both ways in order."""

    async def story(link: Link, told: Told) -> None:
        heard: list[str] = []
        link.notified = heard.append
        await link.ready()
        await link.listen('odd "name"; --')
        await _readable(link, lambda: ring("one"))
        assert link.take_notifications()
        assert heard == ["one"]
        ring("two")
        ring("drei \N{SNOWMAN}")
        while len(heard) < 3:
            await one(link)
        assert heard == ["one", "two", "drei \N{SNOWMAN}"]
        assert link.take_notifications()

    def ring(payload: str) -> None:
        see.execute("SELECT pg_notify(%s, %s)", ('odd "name"; --', payload))

    with connect(database) as see:
        play(database, story)


# --------------------------------------------------------------------------------------------------


async def _patiently(
    link: Link, told: Told, story: Callable[[Link, Told], Awaitable[None]]
) -> None:
    """With statements that may take their time."""
    link._patience = 2 * SOON
    await story(link, told)


async def _readable(link: Link, do: Callable[[], None]) -> None:
    """Does this and waits until something has arrived at the link."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    descriptor = link.descriptor()
    assert descriptor is not None
    loop.add_reader(descriptor, arrived.set)
    try:
        do()
        async with asyncio.timeout(SOON):
            await arrived.wait()
    finally:
        loop.remove_reader(descriptor)
