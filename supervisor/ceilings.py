"""How much a slot may hold and use: a look at /proc now and then, never a wait.

A type's own ceilings (`memory=`, `cpu=`) end the attempt that goes above them, by the same road as
a deadline. The host's `max_rss_per_slot` is softer: a process that has grown beyond it is replaced
when its job has ended.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from jobctl.store.sizes import format_size
from jobctl.supervisor.fleet import Fleet
from jobctl.supervisor.listener import Notice, Reason
from jobctl.supervisor.slot import Running, Slot

_SECOND: Final = 1_000_000_000
#: Attempts that have a ceiling are looked at this often; all slots, for the host's, more rarely.
OFTEN_NS: Final = _SECOND // 4
RARELY_NS: Final = 2 * _SECOND
_PROC: Final = Path("/proc")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Ceilings:
    """Watches the slots of one fleet. `max_rss` None: only the types' own ceilings."""

    def __init__(self, fleet: Fleet, max_rss: int | None) -> None:
        self._fleet = fleet
        self._max_rss = max_rss
        self._often_ns = self._rarely_ns = 0

    def enforce(self, now_ns: int) -> None:
        """What is due; called once a turn."""
        if now_ns < self._often_ns:
            return
        self._often_ns = now_ns + OFTEN_NS
        for slot in self._fleet.busy():
            running = slot.running
            if running is not None and not slot.is_being_killed and slot.pid:
                self._enforce(slot, running)
        if now_ns >= self._rarely_ns:
            self._rarely_ns = now_ns + RARELY_NS
            self._fleet.note_kernel_kills()
            if self._max_rss is not None:
                self._recycle_large(self._max_rss)

    def _enforce(self, slot: Slot, running: Running) -> None:
        most = running.memory_bytes
        if most and (held := resident_bytes(slot.pid)) > most:
            why = f"held {format_size(held)}, and its type may hold {format_size(most)}"
            self._fleet.kill(slot, Reason.MEMORY, token=running.token, why=why)
            return
        most_seconds = running.cpu_seconds
        if not most_seconds or (started := slot.started()) is None:
            return
        used = cpu_seconds(slot.pid) - started.cpu_ns / 1e9
        if used > most_seconds:
            why = f"used {used:.1f} s, and its type may use {most_seconds:g} s"
            self._fleet.kill(slot, Reason.CPU, token=running.token, why=why)

    def _recycle_large(self, most: int) -> None:
        for slot in self._fleet.slots():
            # One that has done nothing yet is as large as the app is: another would be no smaller.
            if slot.leaving is not None or not slot.finished or slot.is_being_killed:
                continue
            held = resident_bytes(slot.pid)
            if held > most:
                self._fleet.say(
                    Notice.TOO_LARGE,
                    slot,
                    f"slot {slot.number} (process {slot.pid}) holds {format_size(held)} after "
                    f"{slot.finished} jobs, more than {format_size(most)}: it is replaced as soon "
                    "as it runs nothing",
                )
                self._fleet.leave(slot, Reason.RECYCLE)


def resident_bytes(pid: int) -> int:
    """What a process holds in memory now; 0 if it is gone."""
    try:
        return int((_PROC / str(pid) / "statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, all its threads together; 0 if it is gone."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, IndexError, ValueError):
        return 0.0
