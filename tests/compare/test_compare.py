"""That the comparison measures what it says, and that jobctl's row holds."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from jobctl.store.embedded import EmbeddedPostgres
from tests.compare.apps.terms import Terms
from tests.compare.comparison import Comparison
from tests.compare.diary import Diary, Line
from tests.compare.order import Order
from tests.compare.result import CulpritResult, PauseResult, Result, StopResult
from tests.compare.roster import OWN, SYSTEMS
from tests.compare.scenarios import BY_NAME, SCENARIOS
from tests.compare.table import table
from tests.compare.verdict import complaints, row

TERMS = Terms(
    folder=Path(), dsn="", redis="", slots=4, tries=3, limit=1.0, grace=2.0, slow=3.0,
    stale=6.0, late_ack=False,
)  # fmt: skip

DIED = CulpritResult(
    runs=3, most_at_once=1, word="dead", over=True, succeeded=False, slot_back=0.2, watched=9.0
)
GOOD: dict[str, Result] = {
    **dict.fromkeys(("kill9", "gil", "c", "loop", "wakes"), DIED),
    "term-gil": StopResult(exited_after=1.2, left_behind=0),
    "term-c": StopResult(exited_after=1.2, left_behind=0),
    "pause": PauseResult(again_after=8.0, refused=True, word="running"),
}


def test_a_run_counts_only_while_it_has_neither_ended_nor_lost_its_process() -> None:
    lines = [
        Line(1.0, "slow", "start", 10),
        Line(1.1, "culprit", "start", 11),
        Line(2.0, "culprit", "dies", 11),
        Line(2.1, "gauge-1", "start", 12),
        Line(2.2, "gauge-2", "start", 12),
        Line(2.3, "gauge-2", "left", 12),
    ]
    assert Diary(lines).running(lambda pid: pid != 11) == {"slow": 1, "gauge-1": 1}
    assert Diary(lines).running(lambda pid: True)["culprit"] == 1


def test_a_row_that_holds_draws_no_complaint() -> None:
    assert complaints(GOOD, SCENARIOS, TERMS) == []


def test_every_broken_promise_draws_its_complaint() -> None:
    broken: dict[str, tuple[Result, str]] = {
        "kill9": (replace(DIED, runs=4), "not bounded"),
        "gil": (replace(DIED, slot_back=4.1), "back after 4.1 s"),
        "c": (replace(DIED, slot_back=None), "slot was lost"),
        "loop": (replace(DIED, hurt=["slow"]), "bystanders hurt: slow"),
        "wakes": (replace(DIED, succeeded=True), "came too late was accepted"),
        "term-gil": (StopResult(exited_after=None, left_behind=0), "does not exit"),
        "term-c": (StopResult(exited_after=1.0, left_behind=2), "2 processes behind"),
        "pause": (PauseResult(again_after=8.0, refused=False, word="succeeded"), "was accepted"),
    }
    assert set(broken) == set(BY_NAME)
    for name, (result, words) in broken.items():
        (complaint,) = complaints({**GOOD, name: result}, SCENARIOS, TERMS)
        assert complaint.startswith(name) and words in complaint
    without = {name: result for name, result in GOOD.items() if name != "gil"}
    assert complaints(without, SCENARIOS, TERMS) == ["gil: no result"]


def test_a_summary_is_the_worst_of_each() -> None:
    results = {
        **GOOD,
        "kill9": replace(DIED, runs=6, over=False),
        "gil": replace(DIED, slot_back=None, hurt=["slow", "quick-1"]),
        "term-c": StopResult(exited_after=None, left_behind=0),
        "pause": PauseResult(again_after=None, refused=None, word="STARTED"),
    }
    worst = row(results, TERMS.tries)
    assert (worst.runs, worst.bounded, worst.slot_lost, worst.hurt) == (6, "no", True, 2)
    assert (worst.exits, worst.refused) == (False, None)
    last = table({"peer": results}, {"peer": "peer 1.0"}, TERMS).split("summary")[1]
    (line,) = [each for each in last.splitlines() if "peer 1.0" in each]
    assert line.split() == ["peer", "1.0", "6", "NO", "never", "2", "NO", "-"]


def test_jobctls_own_row_holds_for_a_killed_process_and_a_hang_in_c(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    """The same runs as `make compare`, with a limit of a second."""
    (system,) = [each for each in SYSTEMS if each.name == OWN]
    scenarios = [BY_NAME[name] for name in ("kill9", "gil", "wakes")]
    orders = [
        Order(system, each, replace(TERMS, folder=tmp_path / each.name), sys.executable, "")
        for each in scenarios
    ]
    comparison = Comparison(postgres, at_once=3)
    comparison.work_off(orders)
    assert comparison.failures == []
    assert complaints(comparison.results[OWN], scenarios, TERMS) == []
