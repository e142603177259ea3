"""The few system calls that Python's standard library does not have.

Nothing here knows what a slot is.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_TASKS: Final = Path("/proc/self/task")

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """The kernel kills this process when the thread that is its parent now ends.

    The caller compares `os.getppid()` with what it should be *afterwards*: a parent that was gone
    before cannot end once more.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """From now on this process is the parent of every descendant that loses its own."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def join_group(members: str) -> str:
    """Moves this process into the control group with this `cgroup.procs`. Why not; empty: done.

    No error: a process outside of its group can still be killed in other ways.
    """
    try:
        descriptor = os.open(members, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"0")
        finally:
            os.close(descriptor)
    except OSError as error:
        return str(error)
    return ""


def thread_count() -> int:
    """Kernel threads of this process; Python knows only of its own."""
    return sum(1 for _ in _TASKS.iterdir())


def wait_for_exit(pidfd: int, seconds: float) -> bool:
    """Whether the process behind a pidfd ended within that time. Blocks: not for an event loop."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(round(seconds * 1000)))


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}, {argument}): {os.strerror(code)}")
