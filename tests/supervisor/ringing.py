"""Producers that ring as a small model: rings limited to one in 20 ms, late commits, rollbacks.

Time is in milliseconds and stands still while whoever is rung works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jobctl.supervisor.doorbell import AFTER_RING_SECONDS, POLL_SECONDS, RING_SPACING_SECONDS

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
    """Producers, the sequence, notifications and one listener, which finds what is committed."""

    def __init__(self, producers: list[Producer]) -> None:
        self.producers = producers
        self.last_ring = -10_000
        self.number = 0
        self.rings: set[int] = set()  # producers whose transaction carries a notification
        self.waiting: dict[int, int] = {}  # producer -> when it was committed
        self.waits: dict[int, int] = {}  # producer -> from its commit until it was found

    def rung(self, now: int) -> None:
        """The listener hears a ring."""
        raise NotImplementedError

    def dispatch(self, now: int) -> None:
        """The listener does whatever is due, and may call `find`."""
        raise NotImplementedError

    def run(self, until: int) -> None:
        for now in range(until):
            for index, producer in enumerate(self.producers):
                if producer.at == now:
                    self._enqueue(index, now)
                if producer.at + producer.open_for == now and not producer.rolled_back:
                    self._commit(index, now)
            self.dispatch(now)

    def find(self, now: int) -> bool:
        """Takes everything that is committed; False if that is nothing."""
        found = bool(self.waiting)
        for index, committed in self.waiting.items():
            self.waits[index] = now - committed
        self.waiting.clear()
        return found

    def _enqueue(self, index: int, now: int) -> None:
        self.number += 1
        if now - self.last_ring >= SPACING:
            self.last_ring = now  # kept in a sequence: a rollback does not take it back
            self.rings.add(index)

    def _commit(self, index: int, now: int) -> None:
        self.waiting[index] = now
        if index in self.rings:
            self.rung(now)


def check(world: World) -> None:
    """Nobody waits for longer than was promised: who is heard at most what follows a ring, and
    everybody one poll."""
    end = max(one.at + one.open_for for one in world.producers)
    poll = ceil(POLL_SECONDS * MS * 1.2)
    world.run(end + poll + 2)
    assert not world.waiting
    for index, producer in enumerate(world.producers):
        if producer.rolled_back:
            continue
        quick = _heard(world.producers, index, world.rings) and producer.open_for == 0
        promise = ceil(AFTER_RING_SECONDS * MS) if quick else poll
        assert world.waits[index] <= promise, (index, producer, world.waits[index])


def _heard(producers: list[Producer], index: int, rings: set[int]) -> bool:
    """Whether the ring that this producer relies on was committed by the time that it was."""
    mine = producers[index]
    if index in rings:
        return True
    before = [one for one in rings if producers[one].at <= mine.at]
    last = max(before, key=lambda one: (producers[one].at, one))
    rang = producers[last]
    return not rang.rolled_back and rang.at + rang.open_for <= mine.at + mine.open_for


def fails(world: Callable[[list[Producer]], World]) -> bool:
    """Whether `check` finds producers with which this does not keep the promise: for controls."""

    @settings(
        max_examples=2000, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate],  # found is enough: no time for the smallest example
    )  # fmt: skip
    @given(producers())
    def explore(given_producers: list[Producer]) -> None:
        check(world(given_producers))

    try:
        explore()
    except AssertionError:
        return True
    return False
