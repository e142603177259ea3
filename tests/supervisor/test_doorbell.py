"""When a dispatcher looks for work, among producers of a small model."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobctl.supervisor.doorbell import WHOLE_SECONDS, Doorbell, Due
from jobctl.supervisor.lanes import Look
from tests.supervisor.ringing import MS, Producer, World, check, fails, producers


class Looking(World):
    """The real `Doorbell` decides when to look, with room for everything."""

    def __init__(self, doorbell: Doorbell, producers: list[Producer]) -> None:
        super().__init__(producers)
        self.doorbell = doorbell
        self.looks: list[tuple[int, Look]] = []

    def rung(self, now: int) -> None:
        self.doorbell.rung(now / MS)

    def dispatch(self, now: int) -> None:
        while (due := self.doorbell.due(now / MS)) is not None:
            if due is Due.PEEK:
                self.doorbell.peeked(self.number, now / MS)
                continue
            assert isinstance(due, Look)
            self.looks.append((now, due))
            self.doorbell.begins(due, now / MS)
            self.doorbell.brought(self.number if self.find(now) else 0, more=False)
        assert self.doorbell.next_due(now / MS) > now / MS  # it never spins


@settings(max_examples=100, deadline=None)
@given(producers(), st.floats(0, 1))
def test_whoever_is_heard_is_served_at_once_and_everybody_by_the_next_poll(
    given_producers: list[Producer], chance: float
) -> None:
    """A ring that was limited away costs the spacing; one that was lost costs one poll."""
    check(Looking(Doorbell(lambda: chance), given_producers))


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
    assert fails(lambda found: Looking(broken(lambda: 0.5), found))


def test_every_poll_looks_below_and_once_a_minute_from_0() -> None:
    """Without any ring, and after a reconnect at once."""
    world = Looking(Doorbell(lambda: 0.5), [])
    world.run(round(2 * WHOLE_SECONDS * MS))
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
