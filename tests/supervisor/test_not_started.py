"""Claimed and not started: what is cancelled goes back, what is acknowledged early is marked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

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
    """A host with three idle slots."""

    def __init__(self) -> None:
        self.alive = False
        self.given: list[Claimed] = []
        self.returned: list[Claimed] = []

    def idle_slots(self, pool: str) -> list[Slot]:
        return [Slot(self)] * 3

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


Story = Callable[[Dispatcher, Hands, Link], Awaitable[None]]


def play(database: str, ack: str, story: Story, **settings: str) -> None:
    """With a dispatcher that has claimed what is queued."""

    async def scene() -> None:
        hands, code = Hands(), Code()
        code.learn(1, [replace(UNREGISTERED, name="send", ack=ack)])
        where = conninfo(database, schema="jobctl", application_name="test")
        link = Link(
            "claim", where, {**DISPATCH_SETTINGS, **settings}, lambda *_: None, lambda *_: None,
            patience_of(60),
        )  # fmt: skip
        pools = all_pools(1, None, ())
        dispatcher = Dispatcher(link, hands, code, pools, 0)  # type: ignore[arg-type]  # Slot
        dispatcher.session_id, dispatcher.backstop = 1, 60.0
        running = asyncio.create_task(dispatcher.run())
        try:
            async with asyncio.timeout(30):
                await story(dispatcher, hands, link)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await link.close()

    asyncio.run(scene())


async def appear(fact: Callable[[], Any]) -> None:
    while not fact():  # noqa: ASYNC110 - the dispatcher has no event of this
        await asyncio.sleep(0.01)


def test_what_waits_here_is_cancelled(database: str) -> None:
    """It goes back at once; what is cancelled while it is on its way from a claim does too, and the
    others start."""
    with reading.connect(database, "jobctl") as see:
        jobs = [put(see) for _ in range(3)]

    async def story(dispatcher: Dispatcher, hands: Hands, _: Link) -> None:
        await appear(lambda: len(dispatcher) == 3)
        tokens = sorted(token for _, token in dispatcher.reserve_tokens())
        dispatcher.do_not_start({tokens[0], max(tokens) + 1, max(tokens) + 2, max(tokens) + 3})
        assert [one.token for one in hands.returned] == tokens[:1]
        hands.alive = True
        with reading.connect(database, "jobctl") as see:
            late = put(see)
        dispatcher.ring()
        await appear(lambda: len(hands.given) == 2 and len(hands.returned) == 2)
        assert hands.returned[1].job_id == late
        assert {one.job_id for one in hands.given} < set(jobs)

    play(database, "late", story)


def test_nothing_that_is_early_starts_without_its_mark(database: str) -> None:
    """The mark is on disk first, although this connection commits asynchronously otherwise."""
    with reading.connect(database, "jobctl") as see:
        put(see)
        see.execute("""
            CREATE TABLE jobctl.committed (how text);
            CREATE FUNCTION jobctl.note() RETURNS trigger LANGUAGE plpgsql AS
                $$BEGIN INSERT INTO jobctl.committed
                  VALUES (current_setting('synchronous_commit')); RETURN NULL; END$$;
            CREATE TRIGGER note AFTER UPDATE OF marked ON jobctl.claim
                FOR EACH ROW EXECUTE FUNCTION jobctl.note();
        """)

    async def story(dispatcher: Dispatcher, hands: Hands, link: Link) -> None:
        hands.alive = True
        await appear(lambda: hands.given)
        assert hands.given[0].marked
        with reading.connect(database, "jobctl") as see:
            (row,) = see.execute("SELECT c.marked, o.how FROM claim c, committed o").fetchall()
            assert row == {"marked": True, "how": "on"}

    try:
        play(database, "early", story, synchronous_commit="off")
    finally:
        with reading.connect(database, "jobctl") as see:
            see.execute("DROP TRIGGER note ON jobctl.claim")
            see.execute("DROP FUNCTION jobctl.note()")
            see.execute("DROP TABLE jobctl.committed")


def test_a_claim_that_is_gone_is_not_marked(database: str) -> None:
    """Somebody has taken the claim meanwhile: there is nothing to mark, and nothing starts."""
    with reading.connect(database, "jobctl") as see:
        put(see)
        see.execute("""
            CREATE FUNCTION jobctl.take() RETURNS trigger LANGUAGE plpgsql AS
                $$BEGIN NEW.session_id := 2; RETURN NEW; END$$;
            CREATE TRIGGER take BEFORE INSERT ON jobctl.claim
                FOR EACH ROW EXECUTE FUNCTION jobctl.take();
        """)

    async def story(dispatcher: Dispatcher, hands: Hands, _: Link) -> None:
        hands.alive = True
        await appear(lambda: hands.returned)
        assert hands.given == []

    try:
        play(database, "early", story)
    finally:
        with reading.connect(database, "jobctl") as see:
            see.execute("DROP TRIGGER take ON jobctl.claim")
            see.execute("DROP FUNCTION jobctl.take()")
