"""The sweep: once a second, what no event tells of.

Orphans that nobody watches are reaped, and whoever has outlived its slot is killed. Not while there
may be a slot whose number is not known yet: it would be taken for one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from jobctl.supervisor import strays
from jobctl.supervisor.groups import Groups
from jobctl.supervisor.leftovers import Leftovers
from jobctl.supervisor.slot import Slot

SWEEP_SECONDS: Final = 1.0


class Sweep:
    """Sweeps from `start` to `stop`.

    `own_pids` are the processes of slots and templates; `on_outlived` is told of a slot by whose
    ended job processes are left, and which.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        slots: Mapping[int, Slot],
        own_pids: Callable[[], set[int]],
        expects_births: Callable[[], bool],
        on_outlived: Callable[[Slot, list[int]], None],
    ) -> None:
        self._loop = loop
        self._slots = slots
        self._own_pids = own_pids
        self._expects_births = expects_births
        self._on_outlived = on_outlived
        self._leftovers = Leftovers()
        self._groups: Groups | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, groups: Groups) -> None:
        """Sweeps now, and then every second."""
        self._groups = groups
        self._go_on()

    def stop(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()

    def _go_on(self) -> None:
        if not self._expects_births():
            self._sweep()
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._go_on)

    def _sweep(self) -> None:
        own = self._own_pids()
        strays.reap_unknown(own)
        strays.kill_outliving(own, self._slots)
        if self._groups is not None:
            self._groups.tidy()
        for slot, pids in self._leftovers.outliving(own, self._slots):
            self._on_outlived(slot, pids)
