"""Processes that slipped away from their slot and outlive the job that had started them.

A process in a session of its own whose parent has ended is nobody's child but the supervisor's; its
slot does not see it any more. While the job runs that started it, it may be meant to be there; when
that job has ended it is a bystander's loss. Nothing is killed here: its slot is replaced, and what
belongs to a slot dies with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from jobctl.supervisor import strays
from jobctl.supervisor.slot import Slot
from jobctl.workerproc import launch


class _Seen(NamedTuple):
    life: int  # of its slot; 0: it comes from none of ours
    jobs: int  # that the slot had ended when it was seen first


class Leftovers:
    """Remembers what was seen before."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def outliving(
        self, own: Collection[int], slots: Mapping[int, Slot]
    ) -> list[tuple[Slot, list[int]]]:
        """Slots by whose ended jobs processes are left, and which. `own`: slots and templates."""
        strangers = strays.children() - set(own)
        for pid in self._seen.keys() - strangers:
            del self._seen[pid]
        found: dict[int, list[int]] = {}
        for pid in sorted(strangers):
            seen = self._seen.get(pid)
            if seen is None:
                seen = self._seen[pid] = _first_sight(pid, slots)
            slot = slots.get(seen.life)
            if slot is not None and (slot.running is None or slot.finished > seen.jobs):
                found.setdefault(seen.life, []).append(pid)
        return [(slots[life], pids) for life, pids in found.items()]


def _first_sight(pid: int, slots: Mapping[int, Slot]) -> _Seen:
    mark = strays.mark_of(pid)
    slot = None if mark is None else slots.get(mark.life)
    if mark is None or slot is None or launch.marker(*mark) != slot.mark:
        return _Seen(0, 0)
    return _Seen(slot.life, slot.finished)
