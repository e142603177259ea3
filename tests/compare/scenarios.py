"""What is done to each system, and for how long it is watched."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tests.compare.apps.terms import Terms
from tests.compare.roster import System


class Kind(Enum):
    """How a scenario is told."""

    CULPRIT = "one job goes wrong beside others"
    STOP = "SIGTERM while a job hangs"
    PAUSE = "a host is frozen, its job runs elsewhere, and it wakes"


@dataclass(frozen=True)
class Scenario:
    """`deed` is what the culprit does (deeds.py)."""

    name: str
    kind: Kind
    deed: str
    title: str
    ignores_signals: bool = False


SCENARIOS = (
    Scenario("kill9", Kind.CULPRIT, "kill9", "its process is killed (-9 on itself)"),
    Scenario("gil", Kind.CULPRIT, "gil", "deadlock in C, GIL held", ignores_signals=True),
    Scenario("c", Kind.CULPRIT, "c", "deadlock in C, GIL released", ignores_signals=True),
    Scenario("loop", Kind.CULPRIT, "loop", "endless loop in Python"),
    Scenario("wakes", Kind.CULPRIT, "wakes", "a call that any signal wakes; it then says 'done'"),
    Scenario("term-gil", Kind.STOP, "gil", "SIGTERM during a deadlock in C, GIL held"),
    Scenario("term-c", Kind.STOP, "c", "SIGTERM during a deadlock in C, GIL released"),
    Scenario("pause", Kind.PAUSE, "held", "a paused host wakes late and finishes its job"),
)

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}

QUICK = 3  # quick jobs beside the culprit

STOP_PATIENCE = 90.0  # systemd's TimeoutStopSec; what lives then is killed
PAUSE_PATIENCE = 120.0  # for another host to run the job again; Celery and RQ need over a minute
TOLERANCE = 5.0  # how much later than alone a bystander may end without having been hurt


def window(system: System, scenario: Scenario, terms: Terms) -> float:
    """How long a culprit is watched, at most: several rescues long, and every try's time limit."""
    rescues = terms.tries * (terms.slow + terms.stale + 5) if scenario.deed == "kill9" else 0.0
    extra = system.hard_limit_extra if scenario.ignores_signals else 0.0
    hangs = terms.tries * (terms.limit + extra + 3)
    return max(terms.slow + 30, hangs + terms.slow, rescues + 10)


def hard_limit(system: System, scenario: Scenario, terms: Terms) -> float:
    """After this the script ends a run that has not ended by itself."""
    match scenario.kind:
        case Kind.CULPRIT:
            return window(system, scenario, terms) + 90
        case Kind.STOP:
            return STOP_PATIENCE + 90
        case Kind.PAUSE:
            return PAUSE_PATIENCE + 100
