"""A settler at work on a real database, and somebody who writes down what it reports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from jobctl.store.link import DISPATCH_SETTINGS, Link
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.outcomes import UNREGISTERED, Cause, Failed, decide
from jobctl.supervisor.settle import Other, Settlement, Settler
from tests.claiming import Connection, connect, violations, where
from tests.waiting import until

SESSION = 77
LINK = "jobctl settle test"
FAILED = Failed("ValueError", "no such invoice", code="E1", stack="Traceback")


@dataclass
class Ear:
    """Writes down what the settler reports."""

    settled: list[tuple[int, str]] = field(default_factory=list)  # job, place
    lost: list[int] = field(default_factory=list)
    unstorable: list[tuple[int, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def on_settled(self, settlement: Settlement, place: str) -> None:
        self.settled.append((settlement.claimed.job_id, place))

    def on_lost(self, settlement: Settlement) -> None:
        self.lost.append(settlement.claimed.job_id)

    def on_unstorable(self, settlement: Settlement, error: str) -> None:
        self.unstorable.append((settlement.claimed.job_id, error))

    def on_settle_refused(self, error: str) -> None:
        self.refused.append(error)


@dataclass
class Stage:
    """A settler at work, and a connection of the test's own to see what it does."""

    dsn: str
    link: Link
    settler: Settler
    ear: Ear
    see: Connection

    def other(self, claimed: Claimed, cause: Cause) -> Other:
        return Other(
            claimed,
            decide(
                claimed.job_id, claimed.session_id, claimed.token, claimed, UNREGISTERED, cause, 1.0
            ),
        )

    def value(self, query: str, *parameters: Any) -> Any:
        row = self.see.execute(query.encode(), parameters).fetchone()
        assert row is not None
        return row[0]

    async def written(self, within: float = 20.0) -> None:
        async with asyncio.timeout(within):
            await self.settler.written()

    async def until(self, fact: Callable[[], Any], within: float = 20.0) -> None:
        """`until` in a thread: the loop must go on, and the fact may ask the database."""
        await asyncio.to_thread(until, fact, within)


def play(dsn: str, story: Callable[[Stage], Awaitable[None]], through: str | None = None) -> Ear:
    """Plays a story with a settler whose link leads `through` there."""

    async def scene() -> Ear:
        ear = Ear()
        link = Link("settle", where(through or dsn, LINK), DISPATCH_SETTINGS)
        settler = Settler(link, ear)
        task = asyncio.create_task(settler.run())
        try:
            with connect(dsn) as see:
                await story(Stage(dsn, link, settler, ear, see))
                assert violations(see) == []
        finally:
            task.cancel()
            await asyncio.wait([task])
            await link.close()
        return ear

    return asyncio.run(scene())
