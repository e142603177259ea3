"""A lease keeps a session alive, gives it up before others may, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from jobctl.store.link import Link, Row
from jobctl.supervisor.identity import Identity
from jobctl.supervisor.leases import Lease
from tests.claiming import (
    Connection,
    claim,
    connect,
    enqueue,
    states,
    violations,
    where,
)
from tests.databases import SCHEMA
from tests.waiting import until

SECONDS = 30.0
ME = Identity("a", "machine", "boot", "namespace", 4_000_000, 1, "0")


@dataclass
class Holder:
    """Writes down what the lease reports."""

    sessions: list[int] = field(default_factory=list)
    lost: int = 0
    renewals: list[str] = field(default_factory=list)
    buried: int = 0
    cancels: list[list[tuple[int, int]]] = field(default_factory=list)  # job, token

    def facts(self) -> dict[str, Any]:
        return {
            "draining": False, "busy": 0, "ready": 4, "leader": False, "types": [],
        }  # fmt: skip

    def on_session(self, session_id: int) -> None:
        self.sessions.append(session_id)

    def on_session_lost(self) -> None:
        self.lost += 1

    async def on_earlier_sessions_dead(self, count: int, link: Link) -> None:
        self.buried += count

    def on_renewal(self, result: str) -> None:
        self.renewals.append(result)

    def on_told(self, *told: Any) -> None:
        pass

    def on_refused(self, statement: str, error: psycopg.Error) -> None:
        raise AssertionError(f"{statement}: {error}")

    def on_cancels(self, rows: Sequence[Row]) -> None:
        self.cancels.append([(row[0], row[1]) for row in rows])

    def on_ring(self) -> None:
        pass

    def on_announcement(self) -> None:
        pass


@dataclass
class Stage:
    lease: Lease
    holder: Holder
    link: Link
    see: Connection
    now: float = 1000.0

    async def until(self, fact: Callable[[], Any]) -> None:
        await asyncio.to_thread(until, fact)


@contextmanager
def _seeing(dsn: str) -> Iterator[Connection]:
    with connect(dsn) as see:
        yield see
        assert violations(see) == []


def play(dsn: str, story: Callable[[Stage], Awaitable[None]]) -> None:
    async def scene() -> None:
        with _seeing(dsn) as see:
            holder, link = Holder(), Link("lease", where(dsn), {})
            lease = Lease(link, holder, ME, SECONDS, 4, None, SCHEMA, lambda: stage.now)
            stage = Stage(lease, holder, link, see)
            task = asyncio.create_task(lease.run())
            try:
                await stage.until(lambda: holder.sessions)
                await story(stage)
            finally:
                task.cancel()
                await asyncio.wait([task])
                await link.close()

    asyncio.run(scene())


def test_a_host_gives_up_before_others_may_take_over(database: str) -> None:
    """By a clock of its own, a third of the lease or ten seconds early; a renewal moves that on
    from when it was begun."""

    async def story(on: Stage) -> None:
        assert on.lease.ends_in() == SECONDS - 10
        on.now += SECONDS - 10.1
        assert not on.lease.over()
        on.now += 0.1
        assert on.lease.over()
        on.lease.hurry()
        await on.until(lambda: "renewed" in on.holder.renewals)
        assert on.lease.ends_in() == SECONDS - 10

    play(database, story)


def test_a_session_that_was_declared_dead_is_replaced(database: str) -> None:
    """The next renewal finds out; what was claimed is not ours any more, and a new life begins."""

    async def story(on: Stage) -> None:
        on.see.execute("UPDATE session SET dead = true, dead_because = 'lease expired'")
        on.lease.hurry()
        await on.until(lambda: len(on.holder.sessions) == 2)
        assert on.holder.lost == 1
        assert on.holder.sessions[0] != on.holder.sessions[1]

    play(database, story)


def test_a_lost_connection_costs_no_session(database: str) -> None:
    async def story(on: Stage) -> None:
        on.see.execute("SELECT pg_terminate_backend(%s)", (on.link.backend_pid(),))
        await on.until(lambda: on.link.generation == 2 and "renewed" in on.holder.renewals)
        assert len(on.holder.sessions) == 1

    play(database, story)


def test_an_end_in_order_leaves_no_session_and_loses_no_attempt(database: str) -> None:
    """What a cut-off statement had claimed was never started: it goes back as it was."""

    async def story(on: Stage) -> None:
        jobs = enqueue(on.see, 3)
        claim(on.see, on.holder.sessions[0], most=2)
        await on.lease.end()
        assert on.see.execute("SELECT FROM session").fetchall() == []
        assert states(on.see) == dict.fromkeys(jobs, "queued")
        assert on.see.execute("SELECT max(attempt), max(crashes) FROM job").fetchone() == (0, 0)
        assert [one.job_id for one in claim(on.see, 1, most=2)] == jobs[:2]

    play(database, story)
