"""Attempts that last say so: where they run, since when, and until when at the latest.

A claim is a narrow row that most jobs insert and delete within milliseconds; only those that a
person could see running get the rest of its columns, about a second after they started.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from jobctl.supervisor.fleet import Fleet
from jobctl.supervisor.slot import Running, Slot

#: How long an attempt must have lasted.
AFTER_NS = 1_000_000_000
#: How often to look.
EVERY_NS = 1_000_000_000


class Annotations:
    """Watches what the slots of one fleet run. `allowance`: seconds added to every deadline."""

    def __init__(self, fleet: Fleet, allowance: float) -> None:
        self._fleet = fleet
        self._allowance = allowance
        self._said: set[int] = set()  # tokens
        self._due_ns = 0

    def due(self) -> dict[str, Any] | None:
        """Parameters for `annotate_claims` if there is something to say now (session apart)."""
        now_ns = monotonic_ns()
        if now_ns < self._due_ns:
            return None
        self._due_ns = now_ns + EVERY_NS
        lasting = [
            (slot, slot.running)
            for slot in self._fleet.busy()
            if slot.running is not None and now_ns - slot.running.given_ns > AFTER_NS
        ]
        fresh = [(slot, running) for slot, running in lasting if running.token not in self._said]
        self._said = {running.token for _, running in lasting}
        return self._parameters(fresh, now_ns) if fresh else None

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
