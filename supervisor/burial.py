"""The end of one slot: what it left is killed, its status read, and the reason found.

In this order, because each step needs the one before: its group dies while the number of the group
cannot be anybody else's; what it said is read without waiting for its socket to close (a
grandchild may hold it open); it is reaped; and what escaped its group is hunted as it is adopted.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from jobctl.store.sizes import format_size
from jobctl.supervisor.exits import UNKNOWN_EXIT, ExitReason, describe_exit
from jobctl.supervisor.kill import Kill
from jobctl.supervisor.listener import Death, Reason
from jobctl.supervisor.slot import Running, Slot
from jobctl.supervisor.strays import Hunt

#: How long a death is kept back while what the slot had started is still dying.
HUNT_SECONDS: Final = 1.0
_FIRST_PAUSE: Final = 0.002

_DEEDS = {
    Reason.TIMEOUT: "killed at its hard deadline",
    Reason.CANCEL: "killed because its job was cancelled by force",
    Reason.MEMORY: "killed because it used too much memory",
    Reason.CPU: "killed because its job used too much CPU time",
    Reason.LOST: "killed because its claim was no longer this host's",
    Reason.INTERRUPT: "killed because it did not end in time for a stop",
    Reason.LEASE: "killed because the lease could not be renewed in time",
    Reason.STOP: "killed because the supervisor stops",
    Reason.BOOT: "killed because it did not become ready in time",
    Reason.CRASH: "killed because it could not be trusted any more",
    Reason.RECYCLE: "killed because it did not leave when told to, after long service",
    Reason.RELOAD: "killed because it did not leave when told to, for newer code",
}


@dataclass(frozen=True, slots=True)
class Remains:
    """What wait4 says about a dead process."""

    exit: ExitReason
    peak_memory_bytes: int
    cpu_seconds: float


NO_REMAINS: Final = Remains(UNKNOWN_EXIT, 0, 0.0)


def reap(pid: int, *, killed: bool) -> Remains:
    """Reads the status of a dead child; unknown if somebody else has done so."""
    try:
        found, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return NO_REMAINS
    if found == 0:
        return NO_REMAINS
    return Remains(
        describe_exit(status, expected_kill=killed), usage.ru_maxrss * 1024, _cpu_seconds(usage)
    )


def certify(
    slot: Slot,
    running: Running | None,
    kill: Kill | None,
    remains: Remains,
    *,
    starved: bool = False,
) -> Death:
    """Why it died and what is known. Before the slot is closed: the page is read.

    `starved`: the kernel's out-of-memory killer has just struck, and nobody here killed it.
    """
    reason = Reason.MEMORY if starved else _reason(slot, running, kill, remains.exit)
    started = slot.started()
    before = 0 if started is None else started.cpu_ns / 1e9
    said = slot.progress()
    return Death(
        reason=reason,
        exit=remains.exit,
        sentence=_starved(remains) if starved else _sentence(running, kill, remains.exit),
        stack=slot.stack.text(0 if running is None else running.token),
        peak_memory_bytes=remains.peak_memory_bytes,
        cpu_seconds=max(0.0, remains.cpu_seconds - before),
        started=started is not None,
        started_ns=0 if started is None else started.at_ns,
        progress=None if said is None else said[1],
    )


class Burial:
    """Kills what a dead slot had started, round by round, and then says that it is over."""

    def __init__(
        self,
        hunt: Hunt,
        loop: asyncio.AbstractEventLoop,
        spared: Callable[[], Collection[int]],
        over: Callable[[list[int]], None],
    ) -> None:
        self._hunt = hunt
        self._loop = loop
        self._spared = spared
        self._over = over
        self._until = loop.time() + HUNT_SECONDS
        self._pause = _FIRST_PAUSE

    def go_on(self) -> None:
        """One round, and another a little later if there was anybody."""
        if self._hunt.round(self._spared()) and self._loop.time() < self._until:
            self._loop.call_later(self._pause, self.go_on)
            self._pause *= 1.5
            return
        self._over(self._hunt.give_up())


def _reason(slot: Slot, running: Running | None, kill: Kill | None, end: ExitReason) -> Reason:
    if kill is not None:
        return kill.reason
    if slot.ready_ns == 0:
        return Reason.BOOT
    if running is None and slot.leaving is not None and slot.told_to_leave and end.code == 0:
        return slot.leaving
    return Reason.CRASH


def _sentence(running: Running | None, kill: Kill | None, end: ExitReason) -> str:
    if kill is not None:
        deed = _DEEDS[kill.reason]
        if kill.reason is Reason.TIMEOUT and running is not None:
            deed += f" of {running.hard_seconds:g} s"
        because = f": it {kill.why}" if kill.why else ""
        return f"{deed}{because}"
    if running is not None:
        return f"{end.sentence} in the middle of a job"
    return end.sentence


def _starved(remains: Remains) -> str:
    held = format_size(remains.peak_memory_bytes)
    return f"killed by the kernel's out-of-memory killer; it had held up to {held}"


def _cpu_seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime
