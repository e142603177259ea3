"""A dispatcher with a real PostgreSQL, and slots that do nothing: what waits in a host is seen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import psycopg

from jobctl.store.dsn import conninfo
from jobctl.store.link import DISPATCH_SETTINGS, Link, patience_of
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.code import Code
from jobctl.supervisor.dispatch import Dispatcher
from jobctl.supervisor.outcomes import UNREGISTERED, Failed, HandedBack, Unrunnable
from jobctl.supervisor.pool_spec import all_pools
from jobctl.supervisor.slot import Running


class Slot:
    """Takes nothing, as one that has just died; or, once `alive`, whatever it is given."""

    generation, number, pool = 1, 1, "default"

    def __init__(self, hands: Hands) -> None:
        self._hands = hands

    def give(self, running: Running, frame: bytes) -> bool:
        if self._hands.alive:
            self._hands.given.append(running.claim)
        return self._hands.alive


class Hands:
    """A host with three idle slots, and a lease that may be `over`."""

    def __init__(self) -> None:
        self.alive = False
        self.idle = 3
        self.over = False
        self.given: list[Claimed] = []
        self.returned: list[Claimed] = []
        self.ran: list[str] = []  # the statements, by name

    def idle_slots(self, pool: str) -> list[Slot]:
        return [Slot(self)] * self.idle

    def may_claim(self) -> bool:
        return True

    def may_start(self) -> bool:
        return not self.over

    def give_back(self, claimed: Claimed, cause: HandedBack | Unrunnable | Failed) -> None:
        assert isinstance(cause, HandedBack)
        self.returned.append(claimed)

    def holds(self) -> set[tuple[int, int]]:
        return set()

    def disown(self, claims: list[tuple[int, int]]) -> None:
        assert claims == []

    def on_claims_missing(self, present: set[int], before_token: int) -> None: ...

    def on_claimed(self, claimed: list[Claimed]) -> None: ...

    def on_refused(self, statement: str, error: psycopg.Error) -> None:
        raise error


Story = Callable[[Dispatcher, Hands, Link], Awaitable[None]]


def play(
    database: str, story: Story, hands: Hands | None = None, ack: str = "late", **settings: str
) -> None:
    """With a dispatcher that has claimed what is queued."""

    async def scene() -> None:
        host, code = hands or Hands(), Code()
        code.learn(1, [replace(UNREGISTERED, name="send", ack=ack)])
        where = conninfo(database, schema="jobctl", application_name="test")
        link = Link(
            "claim", where, {**DISPATCH_SETTINGS, **settings},
            lambda statement, _: host.ran.append(statement), lambda *_: None, patience_of(60),
        )  # fmt: skip
        pools = all_pools(1, None, ())
        dispatcher = Dispatcher(link, host, code, pools, 0)  # type: ignore[arg-type]  # Slot
        dispatcher.session_id, dispatcher.backstop = 1, 60.0
        running = asyncio.create_task(dispatcher.run())
        try:
            async with asyncio.timeout(30):
                await story(dispatcher, host, link)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await link.close()

    asyncio.run(scene())


async def appear(fact: Callable[[], Any]) -> None:
    while not fact():  # noqa: ASYNC110 - the dispatcher has no event of this
        await asyncio.sleep(0.01)
