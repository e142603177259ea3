"""A queue is paused while a host has jobs of it in reserve: they go back, and start nowhere."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg

from jobctl.store import queues, reading
from jobctl.store.dsn import conninfo
from jobctl.store.link import DISPATCH_SETTINGS, Link, patience_of
from jobctl.store.operating import Order
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.code import Code
from jobctl.supervisor.dispatch import Dispatcher
from jobctl.supervisor.outcomes import UNREGISTERED, Failed, HandedBack, Unrunnable
from jobctl.supervisor.pool_spec import all_pools
from jobctl.supervisor.slot import Running
from tests.store.standing import put


class DyingSlot:
    """Idle as far as anybody knows; whatever it is given comes back."""

    generation, number, pool = 1, 1, "default"

    def give(self, running: Running, frame: bytes) -> bool:
        return False


class Hands:
    """A host whose only slot has just died, so that all it claims stays in reserve."""

    def __init__(self) -> None:
        self.returned: list[Claimed] = []

    def idle_slots(self, pool: str) -> list[DyingSlot]:
        return [DyingSlot()] * 3

    def may_claim(self) -> bool:
        return True

    def may_start(self) -> bool:
        return True

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


def test_what_waits_in_the_host_goes_back_when_its_queue_is_paused(database: str) -> None:
    """At once, by the announcement; jobs of other queues stay."""

    async def story() -> None:
        hands, code = Hands(), Code()
        code.learn(1, [replace(UNREGISTERED, name="send")])
        where = conninfo(database, schema="jobctl", application_name="test")
        link = Link(
            "claim", where, DISPATCH_SETTINGS, lambda *_: None, lambda *_: None, patience_of(60)
        )
        pools = all_pools(1, None, ())
        dispatcher = Dispatcher(link, hands, code, pools, 0)  # type: ignore[arg-type]  # DyingSlot
        dispatcher.session_id, dispatcher.backstop = 1, 60.0
        running = asyncio.create_task(dispatcher.run())
        try:
            async with asyncio.timeout(30):
                while len(dispatcher) < 3:  # noqa: ASYNC110 - it has no event of this
                    await asyncio.sleep(0.01)
                with reading.connect(database, "jobctl") as operator:
                    queues.pause(operator, ["mail"], Order("ann@ops"))
                dispatcher.reread()
                while len(dispatcher) > 1:  # noqa: ASYNC110 - nor of that
                    await asyncio.sleep(0.01)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await link.close()
        assert [one.queue for one in hands.returned] == ["mail", "mail"]

    with reading.connect(database, "jobctl") as connection:
        for queue in ("mail", "mail", "reports"):
            put(connection, queue=queue)
    asyncio.run(story())
