"""Negative controls: the product with one guard taken out, in which the checker must find fault.

A guard is taken out of a copy by replacing text. If the text is not there any more, the control
says so and fails: it must be written anew, not dropped.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jobctl
from tests.chaos.storm import Plan


@dataclass(frozen=True)
class Cut:
    """One place: the file below `jobctl/`, what stands there, and what is to stand there."""

    file: str
    guard: str
    instead: str


@dataclass(frozen=True)
class Control:
    """A guard, and a run short and cruel enough to miss it. `finds`: words of a violation."""

    guard: str
    cuts: Sequence[Cut]
    plan: Plan
    finds: str


CONTROLS = (
    Control(
        "the fence",
        (
            Cut(
                "store/sql/settle_ended.sql",
                "o.job_id = t.job_id AND o.session_id = t.session_id AND o.token = t.token",
                "o.job_id = t.job_id",
            ),
            Cut(
                "store/sql/settle_succeeded.sql",
                "o.job_id = a.job_id AND o.token = a.token AND o.session_id = %(session)s",
                "o.job_id = a.job_id",
            ),
        ),
        Plan(
            70,
            hosts=3,
            at_once=1,
            profile={"freeze": 1},
            promotion=False,
            lease=2.0,
            pace=5.0,
            kinds={"slow": 1},
            longest_job=15.0,
        ),
        finds="was accepted",
    ),
    Control(
        "the second look",
        (
            Cut(
                "supervisor/lanes.py",
                "case Look.BELOW:\n                return self.safe\n"
                "            case Look.WHOLE:\n                return 0\n",
                "case _:\n                return self.low\n",
            ),
        ),
        Plan(12, profile={}, promotion=False, pace=0.1, kinds={"quick": 1}, bound=10.0),
        finds="has not ended: it is queued",
    ),
    Control(
        "the amnesty",
        (
            Cut(
                "supervisor/duties.py",
                "if self._clock() < away_at + self._patience:",
                "if False:",
            ),
        ),
        Plan(
            40,
            hosts=4,
            profile={"outage": 1},
            promotion=False,
            lease=2.0,
            pace=5.0,
            kinds={"slow": 1},
            longest_job=5.0,
        ),
        finds="nothing had been done to it",
    ),
)


def without(control: Control, folder: Path) -> Path:
    """A folder with a copy of the product that lacks the guard."""
    package = folder / "product" / "jobctl"
    shutil.copytree(
        Path(jobctl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    for cut in control.cuts:
        file = package / cut.file
        text = file.read_text()
        if text.count(cut.guard) != 1:
            raise AssertionError(
                f"{control.guard} is not where this control takes it out of {cut.file}: "
                f"{cut.guard!r}. Find where it went and change the control."
            )
        file.write_text(text.replace(cut.guard, cut.instead))
    return package.parent
