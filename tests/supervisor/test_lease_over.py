"""The lease is over, or nearly: nothing new starts, whatever is idle and whatever waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg

from jobctl.store import reading
from jobctl.store.dsn import conninfo
from jobctl.store.link import DISPATCH_SETTINGS, Link, patience_of
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.code import Code
from jobctl.supervisor.dispatch import Dispatcher
from jobctl.supervisor.outcomes import UNREGISTERED, Failed, HandedBack, Unrunnable
from jobctl.supervisor.pool_spec import all_pools
from jobctl.supervisor.slot import Running
from tests.store.standing import put


class IdleSlot:
    """Takes one job after the other."""

    generation, number, pool = 1, 1, "default"

    def __init__(self) -> None:
        self.given: list[int] = []

    def give(self, running: Running, frame: bytes) -> bool:
        self.given.append(running.job_id)
        return True


class Hands:
    """A host that cannot renew its lease, and has not got round to handing anything back."""

    def __init__(self) -> None:
        self.slot = IdleSlot()
        self.over = True

    def idle_slots(self, pool: str) -> list[IdleSlot]:
        return [self.slot] * 3

    def may_claim(self) -> bool:
        return True

    def may_start(self) -> bool:
        return not self.over

    def give_back(self, claimed: Claimed, cause: HandedBack | Unrunnable | Failed) -> None: ...

    def holds(self) -> set[tuple[int, int]]:
        return set()

    def disown(self, claims: list[tuple[int, int]]) -> None: ...

    def on_claims_missing(self, present: set[int], before_token: int) -> None: ...

    def on_claimed(self, claimed: list[Claimed]) -> None: ...

    def on_refused(self, statement: str, error: psycopg.Error) -> None:
        raise error


def test_a_slot_is_not_fed_once_the_lease_is_over(database: str) -> None:
    """As when a frozen host wakes: a slot is idle, its job is there, and both belong to a host that
    others may believe dead already. The job stays unstarted until the lease is known to hold."""

    async def story() -> None:
        hands, code = Hands(), Code()
        code.learn(1, [replace(UNREGISTERED, name="send")])
        where = conninfo(database, schema="jobctl", application_name="test")
        link = Link(
            "claim", where, DISPATCH_SETTINGS, lambda *_: None, lambda *_: None, patience_of(60)
        )
        pools = all_pools(1, None, ())
        dispatcher = Dispatcher(link, hands, code, pools, 0)  # type: ignore[arg-type]  # IdleSlot
        dispatcher.session_id, dispatcher.backstop = 1, 60.0
        running = asyncio.create_task(dispatcher.run())
        try:
            async with asyncio.timeout(30):
                while len(dispatcher) < 3:  # noqa: ASYNC110 - it has no event of this
                    await asyncio.sleep(0.01)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await link.close()
        dispatcher.feed(hands.slot)  # type: ignore[arg-type]  # likewise
        assert hands.slot.given == []
        assert len(dispatcher) == 3
        hands.over = False
        dispatcher.feed(hands.slot)  # type: ignore[arg-type]  # likewise
        assert hands.slot.given == [jobs[0]]

    with reading.connect(database, "jobctl") as connection:
        jobs = [put(connection) for _ in range(3)]
    asyncio.run(story())
