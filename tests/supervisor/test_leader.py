"""The leader: one of all, by a lock that it holds, with duties that do not spoil each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from jobctl.store.dsn import conninfo
from jobctl.store.link import Link
from jobctl.supervisor.leader import Duty, Leader


class Candidate:
    """One that would lead."""

    def __init__(self, dsn: str, *duties: Duty) -> None:
        self.changes: list[bool] = []
        self.done: list[str] = []
        self.errors: list[tuple[str, str]] = []
        self.session = 1
        where = conninfo(dsn, schema="jobctl", application_name="candidate")
        self.link = Link("lead", where, {"idle_session_timeout": "10s"})
        self.leader = Leader(
            self.link,
            duties,
            on_change=self.changes.append,
            on_done=self.done.append,
            on_error=lambda duty, error: self.errors.append((duty, str(error))),
            session=lambda: self.session,
            somebody_leads=lambda: False,
        )


async def until(fact: Callable[[], bool], within: float = 10) -> None:
    async with asyncio.timeout(within):
        while not fact():  # noqa: ASYNC110 - facts of the database and of several objects
            await asyncio.sleep(0.01)  # the one thing here that naps


def run(make: Callable[[], tuple[Candidate, ...]], story: Callable[..., Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        candidates = make()
        tasks = [asyncio.create_task(one.leader.run()) for one in candidates]
        try:
            await story(*candidates)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(all_of_it())


async def nothing(link: Link) -> None:
    """A step."""


def test_there_is_one_and_the_other_follows_when_it_leaves(database: str) -> None:
    async def story(one: Candidate, two: Candidate) -> None:
        await until(lambda: one.leader.leads or two.leader.leads)
        first, second = (one, two) if one.leader.leads else (two, one)
        await until(lambda: len(first.done) > 0)
        assert not second.leader.leads
        first.session = 0  # it may not lead any more
        first.leader.hurry("nothing")
        second.leader.try_now()
        await until(lambda: second.leader.leads)
        assert first.changes == [True, False]

    run(lambda: tuple(Candidate(database, Duty("nothing", 5, nothing)) for _ in range(2)), story)


@pytest.mark.parametrize("how", ["pg_terminate_backend(%s)", "pg_cancel_backend(%s)"])
def test_a_lost_connection_ends_leadership_at_once(database: str, how: str) -> None:
    """A cancelled statement is only a duty's error; a backend that is gone is the end of it."""

    async def story(one: Candidate) -> None:
        await until(lambda: one.leader.leads)
        pid = one.link.backend_pid()
        with psycopg.connect(database) as connection:
            connection.execute(f"SELECT {how}", (pid,))
        if "terminate" in how:
            await until(lambda: one.changes[:2] == [True, False], within=1)
            await until(lambda: one.leader.leads and one.link.backend_pid() != pid)
        else:
            await until(lambda: len(one.done) > 5)
            assert one.changes == [True]

    pause = 60.0 if "terminate" in how else 0.05
    run(lambda: (Candidate(database, Duty("some", pause, nothing)),), story)


def test_a_lock_that_is_not_held_any_more_ends_leadership(database: str) -> None:
    """Whatever took it away, the connection being well."""

    async def unlock(link: Link) -> None:
        await link.execute("unlock", "SELECT pg_advisory_unlock_all()")

    async def story(one: Candidate) -> None:
        await until(lambda: one.changes[:2] == [True, False])

    run(lambda: (Candidate(database, Duty("unlock", 60, unlock)),), story)


def test_a_duty_that_fails_is_no_others_fault(database: str) -> None:
    """Neither PostgreSQL's errors nor our own mistakes."""

    async def refused(link: Link) -> None:
        await link.execute("bad", "SELECT 1/0")

    async def mistaken(link: Link) -> None:
        raise KeyError("nobody thought of this")

    async def story(one: Candidate) -> None:
        await until(lambda: one.done.count("nothing") > 3)
        names = {name for name, _ in one.errors}
        assert names == {"refused", "mistaken"}
        assert set(one.done) == {"nothing"}
        assert one.changes == [True]

    duties = {"refused": refused, "mistaken": mistaken, "nothing": nothing}
    run(
        lambda: (Candidate(database, *(Duty(name, 0.02, step) for name, step in duties.items())),),
        story,
    )


def test_a_duty_says_when_it_is_due_and_can_be_hurried(database: str) -> None:
    calls: list[float] = []

    async def step(link: Link) -> float | None:
        calls.append(asyncio.get_running_loop().time())
        return 0.1 if len(calls) < 4 else None

    async def story(one: Candidate) -> None:
        await until(lambda: len(calls) == 4, within=3)
        assert calls[3] - calls[0] < 2
        one.leader.hurry("step")
        await until(lambda: len(calls) == 5, within=1)

    run(lambda: (Candidate(database, Duty("step", 60, step)),), story)


def test_a_lock_is_not_taken_from_another_process_than_ours(database: str) -> None:
    """As a pooler shows it to its client (`test_pooler.py` has a real one): the lock would stay
    with that process when we are gone."""

    async def story(one: Candidate) -> None:
        begun = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > begun + 1)
        assert one.changes == []
        with psycopg.connect(database) as connection:
            held = connection.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            ).fetchone()
        assert held == (0,)

    def behind_a_pooler() -> tuple[Candidate]:
        candidate = Candidate(database)
        candidate.link.backend_pid = lambda: 4242  # type: ignore[method-assign]
        return (candidate,)

    run(behind_a_pooler, story)
