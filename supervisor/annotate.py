"""Attempts that last say so: where they run, since when, until when at the latest, and how far.

A claim is a narrow row that most jobs insert and delete within milliseconds; only those that a
person could see running get the rest of its columns, about a second after they started. What a
handler says of its progress waits in the page that its slot shares with us: the newest is written
once a second, however often it is said, and the last one when the attempt ends.
"""

from __future__ import annotations

import json
from time import monotonic_ns
from typing import Any

from jobctl.supervisor.fleet import Fleet
from jobctl.supervisor.slot import Running, Slot

#: How long an attempt must have lasted.
AFTER_NS = 1_000_000_000
#: How often to look.
EVERY_NS = 1_000_000_000

#: A statement and its parameters, the session apart.
Errand = tuple[str, dict[str, Any]]


class Annotations:
    """Watches what the slots of one fleet run. `allowance`: seconds added to every deadline."""

    def __init__(self, fleet: Fleet, allowance: float) -> None:
        self._fleet = fleet
        self._allowance = allowance
        self._said: set[int] = set()  # tokens
        self._told: dict[int, int] = {}  # token to when it said the progress that is written
        self._due_ns = 0

    def due(self, *, waiting: bool = False) -> list[Errand]:
        """What there is to write now. `waiting`: the last news are not written yet, so that newer
        ones had better wait too: they may be newer still then."""
        now_ns = monotonic_ns()
        if now_ns < self._due_ns:
            return []
        self._due_ns = now_ns + EVERY_NS
        lasting = [
            (slot, slot.running)
            for slot in self._fleet.busy()
            if slot.running is not None and now_ns - slot.running.given_ns > AFTER_NS
        ]
        fresh = [(slot, running) for slot, running in lasting if running.token not in self._said]
        self._said = {running.token for _, running in lasting}
        errands: list[Errand] = []
        if fresh:
            errands.append(("annotate_claims", self._parameters(fresh, now_ns)))
        if not waiting and (news := self._news(lasting)):
            errands.append(("note_progress", news))
        return errands

    def _parameters(self, fresh: list[tuple[Slot, Running]], now_ns: int) -> dict[str, Any]:
        ages = [
            (now_ns - (started.at_ns if (started := slot.started()) else run.given_ns)) / 1e9
            for slot, run in fresh
        ]
        return {
            "jobs": [run.job_id for _, run in fresh],
            "tokens": [run.token for _, run in fresh],
            "slots": [slot.number for slot, _ in fresh],
            "pids": [slot.pid for slot, _ in fresh],
            "started_ago": ages,
            "remains": [
                run.hard_seconds - age + self._allowance
                for (_, run), age in zip(fresh, ages, strict=True)
            ],
        }

    def _news(self, lasting: list[tuple[Slot, Running]]) -> dict[str, Any]:
        """The progress of those that have said something since it was written last."""
        said = [(run, *found) for slot, run in lasting if (found := slot.progress()) is not None]
        fresh = [(run, words) for run, at_ns, words in said if self._told.get(run.token) != at_ns]
        self._told = {run.token: at_ns for run, at_ns, _ in said}
        if not fresh:
            return {}
        return {
            "jobs": [run.job_id for run, _ in fresh],
            "tokens": [run.token for run, _ in fresh],
            "said": [json.dumps(words) for _, words in fresh],
        }
