"""The storm for half a minute; `make chaos` is the long one, with the negative controls."""

from __future__ import annotations

import pytest

from tests.chaos.controls import CONTROLS, Control, without
from tests.chaos.storm import Plan, run
from tests.servers import guarded_folder


@pytest.mark.slow
def test_a_storm_of_half_a_minute() -> None:
    """Kills, freezes, partitions, a slow network, restarts and a promotion; nothing is lost."""
    with guarded_folder() as folder:
        verdict = run(Plan(20, seed=20), folder)
    assert verdict.violations == []
    assert verdict.figures["fault: promotion"] == 1
    assert verdict.figures["endings succeeded"] > 50


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.guard)
def test_every_guard_can_still_be_taken_out(
    control: Control, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A control that does not find its guard any more would prove nothing in `make chaos`."""
    without(control, tmp_path_factory.mktemp("control"))
