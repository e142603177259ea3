"""The dead whose death is not told yet, and those that do not die.

A death is told when what the slot had started is dead as well, or has had its time: until then the
job counts as busy. Whoever hangs in the kernel is told of at once and reaped if it ever ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from signal import SIGKILL

from jobctl.supervisor.burial import Burial, Remains, reap
from jobctl.supervisor.listener import Death, Listener, Notice
from jobctl.supervisor.oom import KernelKills
from jobctl.supervisor.slot import Running, Slot
from jobctl.supervisor.strays import Hunt

Say = Callable[[Notice, Slot | None, str], None]


class Mourning:
    """Lives in the running event loop.

    `own_pids` are the processes that are nobody's leftovers, `retire` gives a slot's control group
    back, `told` is called when somebody has been told of.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: Listener,
        own_pids: Callable[[], set[int]],
        retire: Callable[[Slot], None],
        say: Say,
        told: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._own_pids = own_pids
        self._retire = retire
        self._say = say
        self._told = told
        self._kernel_kills = KernelKills()
        self._mourned: set[Slot] = set()
        self._unkillable: set[Slot] = set()

    @property
    def mourned(self) -> list[Slot]:
        """Those that are dead and not told of."""
        return list(self._mourned)

    @property
    def unkillable(self) -> list[Slot]:
        """Those that were told of and have a process."""
        return list(self._unkillable)

    def note_kernel_kills(self) -> None:
        """Every few seconds: see `oom.py`."""
        self._kernel_kills.note()

    def starved(self, slot: Slot, remains: Remains) -> bool:
        """Whether it was the out-of-memory killer: by the group's own count, else the machine's."""
        if remains.exit.signal != SIGKILL:
            return False
        told = None if slot.group is None else slot.group.starved()
        return self._kernel_kills.struck() if told is None else told

    def bury(self, slot: Slot, session: int, running: Running | None, death: Death) -> None:
        """Its death is told when what it had started is dead as well."""
        self._mourned.add(slot)

        def over(left: list[int]) -> None:
            if left:
                self._say(
                    Notice.LEAKED,
                    slot,
                    f"processes {left} that a job of slot {slot.number} had started do not die",
                )
            self._retire(slot)
            self._loop.call_soon(self._tell, slot, running, death)

        hunt = Hunt(slot.mark, session, slot.group)
        Burial(hunt, self._loop, self._own_pids, over).go_on()

    def give_up(
        self, slot: Slot, running: Running | None, death: Death, after_seconds: float
    ) -> None:
        """It was killed so long ago and is still there."""
        if slot.pidfd >= 0:
            self._unkillable.add(slot)
        self._say(
            Notice.UNKILLABLE,
            slot,
            f"slot {slot.number} (process {slot.pid}) does not die, although it was killed "
            f"{after_seconds:g} s ago: it hangs in the kernel, most often in "
            "input or output on a device or server that is away. Another slot takes its place",
        )
        self._mourned.add(slot)
        self._loop.call_soon(self._tell, slot, running, death)

    def died_after_all(self, slot: Slot) -> bool:
        """Whether it is one that was given up; it is reaped then, and was told of long ago."""
        if slot not in self._unkillable:
            return False
        self._unkillable.discard(slot)
        reap(slot.pid, killed=True)
        slot.forget_process()
        self._retire(slot)
        return True

    def close(self) -> None:
        """What does not die is left to the kernel."""
        for slot in self._unkillable:
            slot.strike()
            slot.close()
            slot.forget_process()
        self._unkillable.clear()

    def _tell(self, slot: Slot, running: Running | None, death: Death) -> None:
        try:
            self._listener.on_death(slot, running, death)
        finally:
            self._mourned.discard(slot)
            self._told()
