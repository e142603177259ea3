"""The marks, explored; and each of their rules taken out, which the exploration must notice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis.stateful import run_state_machine_as_test

from jobctl.supervisor.lanes import Below, Lanes, Look, Plan
from tests.exploring import explore, find
from tests.supervisor.lane_machine import OWN, LaneMachine


def test_no_order_of_events_strands_a_job_or_claims_it_twice() -> None:
    run_state_machine_as_test(LaneMachine, settings=explore(150, steps=40))


class _NeverLooksBelow(Lanes):
    def plan(self, most: int, look: Look) -> Plan:
        return super().plan(most, Look.ABOVE if look is Look.BELOW else look)


class _TrustsWithoutSelect(Lanes):
    def answer(self, asked: Below, occupied: Sequence[bool], xmin: int, xmax: int) -> None:
        super().answer(asked, [False] * len(occupied), xmin, xmax)


class _IgnoresTransactions(Lanes):
    def answer(self, asked: Below, occupied: Sequence[bool], xmin: int, xmax: int) -> None:
        super().answer(asked, occupied, 2**62, xmax)


class _NeverForgets(Lanes):
    def forget(self) -> None:
        pass


class _Plain(LaneMachine):
    """Less happens than could, so that what is looked for is soon found."""

    lanes = (OWN,)
    looks = (Look.BELOW,)
    stages: tuple[str, ...] = ("done",)
    ends: tuple[str, ...] = ()
    disturbances: tuple[str, ...] = ()


class NoSecondLook(_Plain):
    def new_lanes(self) -> Lanes:
        return _NeverLooksBelow()


class NoPlainSelect(_Plain):
    stages = ("done", "begun")

    def new_lanes(self) -> Lanes:
        return _TrustsWithoutSelect()


class CandidateIgnoresXmax(_Plain):
    def new_lanes(self) -> Lanes:
        return _IgnoresTransactions()


class SelectSkipsLocked(_Plain):
    stages = ("done", "done", "begun")
    select_skips_locked = True


class NumberBeforeId(_Plain):
    inserts = (False,)
    number_before_id = True


class NoForgettingAtReconnect(_Plain):
    disturbances = ("crash",)

    def new_lanes(self) -> Lanes:
        return _NeverForgets()


@pytest.mark.parametrize(
    "broken",
    [
        NoSecondLook,
        NoPlainSelect,
        CandidateIgnoresXmax,
        SelectSkipsLocked,
        NumberBeforeId,
        NoForgettingAtReconnect,
    ],
)
def test_without_one_of_the_rules_something_is_stranded(broken: type[LaneMachine]) -> None:
    """Each rule is needed: the exploration finds a counter-example without it."""
    with pytest.raises(AssertionError, match=r"stranded|may be there"):
        run_state_machine_as_test(broken, settings=find(2_000))
