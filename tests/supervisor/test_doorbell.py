"""The doorbell as a small model: rings limited to one in 20 ms, commits that come late, rollbacks.

Time is in milliseconds and stands still while the dispatcher works. The real `Doorbell` decides
when to look; a look takes everything that is committed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jobctl.supervisor.doorbell import (
    AFTER_RING_SECONDS,
    POLL_SECONDS,
    RING_SPACING_SECONDS,
    WHOLE_SECONDS,
    Doorbell,
    Due,
)
from jobctl.supervisor.lanes import Look

MS = 1000.0
SPACING = round(RING_SPACING_SECONDS * MS)


@dataclass(frozen=True)
class Producer:
    """One transaction: when it enqueues, how long it stays open, and whether it is rolled back."""

    at: int
    open_for: int
    rolled_back: bool


@st.composite
def producers(draw: st.DrawFn) -> list[Producer]:
    """A burst, a trickle or anything between."""
    at, found = 0, []
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.one_of(st.integers(0, SPACING + 10), st.integers(0, 400)))
        found.append(
            Producer(at, draw(st.sampled_from([0, 0, 0, 1, 30, 700])), draw(st.booleans()))
        )
    return found


class World:
    """Producers, the sequence, notifications and one dispatcher with room for everything."""

    def __init__(self, doorbell: Doorbell, producers: list[Producer]) -> None:
        self.doorbell = doorbell
        self.producers = producers
        self.last_ring = -10_000
        self.number = 0
        self.rings: set[int] = set()  # producers whose transaction carries a notification
        self.waiting: dict[int, int] = {}  # producer -> when it was committed
        self.waits: dict[int, int] = {}  # producer -> from its commit until it was found
        self.looks: list[tuple[int, Look]] = []

    def run(self, until: int) -> World:
        for now in range(until):
            for index, producer in enumerate(self.producers):
                if producer.at == now:
                    self.enqueue(index, now)
                if producer.at + producer.open_for == now and not producer.rolled_back:
                    self.commit(index, now)
            self.dispatch(now)
        return self

    def enqueue(self, index: int, now: int) -> None:
        self.number += 1
        if now - self.last_ring >= SPACING:
            self.last_ring = now  # kept in a sequence: a rollback does not take it back
            self.rings.add(index)

    def commit(self, index: int, now: int) -> None:
        self.waiting[index] = now
        if index in self.rings:
            self.doorbell.rung(now / MS)

    def dispatch(self, now: int) -> None:
        while (due := self.doorbell.due(now / MS)) is not None:
            if due is Due.PEEK:
                self.doorbell.peeked(self.number, now / MS)
                continue
            assert isinstance(due, Look)
            self.looks.append((now, due))
            self.doorbell.begins(due, now / MS)
            for index, committed in self.waiting.items():
                self.waits[index] = now - committed
            highest = self.number if self.waiting else 0
            self.waiting.clear()
            self.doorbell.brought(highest, more=False)
        assert self.doorbell.next_due(now / MS) > now / MS  # it never spins


def heard(producers: list[Producer], index: int, rings: set[int]) -> bool:
    """Whether the ring that this producer relies on was committed by the time that it was."""
    mine = producers[index]
    if index in rings:
        return True
    before = [one for one in rings if producers[one].at <= mine.at]
    last = max(before, key=lambda one: (producers[one].at, one))
    rang = producers[last]
    return not rang.rolled_back and rang.at + rang.open_for <= mine.at + mine.open_for


def check(doorbell: Doorbell, given_producers: list[Producer]) -> None:
    """Nobody waits for longer than was promised."""
    end = max(one.at + one.open_for for one in given_producers)
    poll = math.ceil(POLL_SECONDS * MS * 1.2)
    world = World(doorbell, given_producers).run(end + poll + 2)
    assert not world.waiting
    for index, producer in enumerate(given_producers):
        if producer.rolled_back:
            continue
        quick = heard(given_producers, index, world.rings) and producer.open_for == 0
        promise = math.ceil(AFTER_RING_SECONDS * MS) if quick else poll
        assert world.waits[index] <= promise, (index, producer, world.waits[index])


@settings(max_examples=100, deadline=None)
@given(producers(), st.floats(0, 1))
def test_whoever_is_heard_is_served_at_once_and_everybody_by_the_next_poll(
    given_producers: list[Producer], chance: float
) -> None:
    """A ring that was limited away costs the spacing; one that was lost costs one poll."""
    check(Doorbell(lambda: chance), given_producers)


class WithoutTheFinalLook(Doorbell):
    """Looks when it is rung, and leaves it at that."""

    def rung(self, now: float) -> None:
        self._wanted = True


class WithoutPolls(Doorbell):
    """Trusts the rings."""

    def begins(self, look: Look, now: float) -> None:
        super().begins(look, now)
        self._poll_at = self._whole_at = math.inf


class ForgetsToPeekAgain(Doorbell):
    """Neither peeks nor looks until the final look is due, and drops that after the first peek."""

    def peeked(self, number: int, now: float) -> None:
        super().peeked(number, now)
        self._final_at = self._peek_at = math.inf


@pytest.mark.parametrize("broken", [WithoutTheFinalLook, WithoutPolls, ForgetsToPeekAgain])
def test_the_model_notices_a_rule_that_is_missing(broken: type[Doorbell]) -> None:
    """With one rule taken out, a counter-example is found."""

    @settings(
        max_examples=2000, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate],  # found is enough: no time for the smallest example
    )  # fmt: skip
    @given(producers())
    def explore(given_producers: list[Producer]) -> None:
        check(broken(lambda: 0.5), given_producers)

    with pytest.raises(AssertionError):
        explore()


def test_every_poll_looks_below_and_once_a_minute_from_0() -> None:
    """Without any ring, and after a reconnect at once."""
    world = World(Doorbell(lambda: 0.5), []).run(round(2 * WHOLE_SECONDS * MS))
    whole = [now for now, look in world.looks if look is Look.WHOLE]
    assert whole == [0, 60_000]
    below = [now for now, look in world.looks if look is Look.BELOW]
    assert len(below) == 118
    assert {look for _, look in world.looks} == {Look.WHOLE, Look.BELOW}
    world.doorbell.forget()
    assert world.doorbell.due(119.5) is Look.WHOLE


def test_a_look_that_failed_is_due_again() -> None:
    """PostgreSQL refused it: nobody else will remember."""
    doorbell = Doorbell(lambda: 0.5)
    doorbell.begins(Look.WHOLE, 0.0)
    doorbell.rung(0.1)
    doorbell.begins(Look.ABOVE, 0.1)
    doorbell.failed()
    assert doorbell.due(0.1) is Look.ABOVE
