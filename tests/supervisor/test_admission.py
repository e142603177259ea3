"""When a dispatcher asks who may be let in, among producers of a small model that leave notes."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobctl.store import reading
from jobctl.store.link import Link
from jobctl.supervisor.admission import Admission
from jobctl.supervisor.dispatch import Dispatcher
from jobctl.supervisor.doorbell import AFTER_RING_SECONDS, POLL_SECONDS
from tests.store.standing import put
from tests.supervisor.dispatching import Hands, appear, play
from tests.supervisor.ringing import MS, Producer, World, check, fails, producers


class Asking(World):
    """The real `Admission` decides when to ask."""

    def __init__(self, admission: Admission, producers: list[Producer]) -> None:
        super().__init__(producers)
        self.admission = admission
        self.admission.use(True, 0.0)
        self.asked: list[int] = []
        self.heard = 0

    def rung(self, now: int) -> None:
        self.heard += 1
        self.admission.rung(now / MS)

    def dispatch(self, now: int) -> None:
        while self.admission.next_due() <= now / MS:
            self.asked.append(now)
            self.admission.begins(now / MS)
            self.find(now)
            self.admission.answered(None, now / MS)


@settings(max_examples=100, deadline=None)
@given(producers(), st.floats(0, 1))
def test_whoever_is_heard_is_let_in_at_once_and_everybody_by_the_next_poll(
    given_producers: list[Producer], chance: float
) -> None:
    """And a ring costs two questions, whatever is claimed meanwhile."""
    world = Asking(Admission(lambda: chance), given_producers)
    check(world)
    polls = math.ceil(world.asked[-1] / (POLL_SECONDS * MS * 0.8)) + 1
    assert len(world.asked) <= 2 * world.heard + polls


class WithoutTheFinalQuestion(Admission):
    """Asks when it is rung, and leaves it at that."""

    def rung(self, now: float) -> None:
        self._rung_at = now


class WithoutPolls(Admission):
    """Trusts the rings."""

    def begins(self, now: float) -> None:
        super().begins(now)
        self._at = math.inf


@pytest.mark.parametrize("broken", [WithoutTheFinalQuestion, WithoutPolls])
def test_the_model_notices_a_rule_that_is_missing(broken: type[Admission]) -> None:
    """With one rule taken out, a counter-example is found."""
    assert fails(lambda found: Asking(broken(lambda: 0.5), found))


def test_a_rate_says_itself_when_to_ask() -> None:
    """Sooner than a poll would, never later."""
    admission = Admission(lambda: 0.5)
    admission.use(True, 0.0)
    admission.begins(0.0)
    admission.answered(0.3, 0.1)
    assert admission.next_due() == pytest.approx(0.1 + 0.3 * 0.8)
    admission.begins(0.4)
    admission.answered(3600.0, 0.4)
    assert admission.next_due() == 0.4 + POLL_SECONDS


def test_a_host_without_an_idle_slot_asks_for_what_is_planned() -> None:
    """In time, and not when a slot is idle and would rather have a job; rings can wait for that."""
    admission = Admission(lambda: 0.5)
    admission.use(True, 0.0)
    admission.begins(0.0)
    admission.rung(0.1)
    assert (admission.next_due(room=True), admission.next_due(room=False)) == (0.1, POLL_SECONDS)
    admission.begins(0.2)
    admission.answered(0.3, 0.2)
    assert admission.next_due(room=False) == admission.next_due() == pytest.approx(0.2 + 0.3 * 0.8)


def test_nobody_asks_where_no_job_has_a_limit() -> None:
    """Neither for a ring nor in a poll; and at once when the first comes."""
    admission = Admission()
    admission.rung(1.0)
    assert admission.next_due() == math.inf
    admission.use(False, 2.0)
    assert admission.next_due() == math.inf
    admission.use(True, 3.0)
    assert admission.next_due() == 3.0


def test_reading_anew_whether_there_are_limits_forgets_no_ring() -> None:
    """It happens every few seconds, and at every announcement."""
    admission = Admission()
    admission.use(True, 0.0)
    admission.rung(1.0)
    admission.use(True, 1.001)
    admission.begins(1.001)
    assert admission.next_due() == 1.0 + AFTER_RING_SECONDS


def test_a_question_that_failed_is_due_again() -> None:
    """PostgreSQL refused it, or was gone: the note is still there."""
    admission = Admission()
    admission.use(True, 0.0)
    admission.begins(0.0)
    admission.failed()
    assert admission.next_due() <= 0.0


def test_claims_do_not_ask(database: str) -> None:
    """With limits in use, a drain of jobs that wait for none asks for what rings and polls say."""
    with reading.connect(database, "jobctl") as connection:
        connection.execute("INSERT INTO limit_state (limit_key) VALUES ('api')")
        for _ in range(90):
            put(connection)
    hands = Hands()
    hands.alive = True  # three slots, which take whatever they are given

    async def story(dispatcher: Dispatcher, hands: Hands, _: Link) -> None:
        await appear(lambda: len(hands.given) == 90)
        assert hands.ran.count("claim") >= 30
        assert 1 <= hands.ran.count("admit") < 10

    play(database, story, hands)


def test_a_busy_host_does_not_ask(database: str) -> None:
    """Every host hears every ring: those that could not start anything leave it to the others."""
    with reading.connect(database, "jobctl") as connection:
        connection.execute("INSERT INTO limit_state (limit_key) VALUES ('api')")
        put(connection)
    hands = Hands()
    hands.alive = True

    async def story(dispatcher: Dispatcher, hands: Hands, link: Link) -> None:
        await appear(lambda: "admit" in hands.ran and len(hands.given) == 1)
        hands.idle = 0
        hands.ran.clear()
        for _ in range(10):
            dispatcher.ring()
            await asyncio.sleep(0.03)
        await appear(lambda: "promote" in hands.ran)  # it is at work all the time
        assert hands.ran.count("admit") <= 2  # polls
        hands.ran.clear()
        hands.idle = 1
        dispatcher.feed(hands.idle_slots("default")[0])  # type: ignore[arg-type]  # Slot
        await appear(lambda: "admit" in hands.ran)

    play(database, story, hands)
