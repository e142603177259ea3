"""How a process ended, in words: the only place that reads a wait status.

The sentence is what is logged and what is stored with the attempt, so it is for somebody who was
not there. The numbers that our own processes leave with are named here and nowhere else.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from jobctl.workerproc import launch


class ExitCode(IntEnum):
    """The numbers with which the template and the slots leave on purpose."""

    CLEAN = launch.EXIT_CLEAN
    FAILED = launch.EXIT_FAILED
    INTERNAL = launch.EXIT_INTERNAL
    ORPHANED = launch.EXIT_ORPHANED
    CONFIGURATION = launch.EXIT_CONFIGURATION


_MEANINGS = {
    ExitCode.FAILED: "the app could not be imported",
    ExitCode.INTERNAL: "jobctl's own code in it failed, see its output",
    ExitCode.ORPHANED: "its supervisor was gone",
    ExitCode.CONFIGURATION: "the app does not exist; restarting will not help",
}

#: Signals that mean something beyond their name to whoever is on call.
_HINTS = {
    signal.SIGKILL: "nobody here sent it: the kernel's out-of-memory killer, or an operator",
    signal.SIGSEGV: "a memory fault in C code",
    signal.SIGBUS: "a memory fault, or a truncated memory-mapped file",
    signal.SIGABRT: "C code gave up by itself",
    signal.SIGXCPU: "its limit of CPU time ran out",
    signal.SIGXFSZ: "its limit of file size was reached",
    signal.SIGSYS: "a forbidden system call",
}


class ExitKind(StrEnum):
    """The three ways to end."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ExitReason:
    """One process's end. `code` is None unless it exited, `signal` None unless one killed it."""

    kind: ExitKind
    code: int | None
    signal: int | None
    sentence: str


#: Somebody else has read the status, or the process would not die.
UNKNOWN_EXIT = ExitReason(ExitKind.UNKNOWN, None, None, "ended in a way that nobody saw")


def describe_exit(status: int, *, expected_kill: bool = False) -> ExitReason:
    """Reads a status of `os.wait4`. `expected_kill` says that our own SIGKILL was on its way."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ExitReason(ExitKind.SIGNALLED, None, number, _signalled(status, expected_kill))
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        return ExitReason(ExitKind.EXITED, code, None, _exited(code))
    return UNKNOWN_EXIT


def _signalled(status: int, expected_kill: bool) -> str:
    number = os.WTERMSIG(status)
    core = ", core dumped" if os.WCOREDUMP(status) else ""
    if expected_kill and number == signal.SIGKILL:
        return f"killed by the supervisor{core}"
    hint = _HINTS.get(number)  # type: ignore[call-overload]
    because = f" ({hint})" if hint else ""
    return f"killed by {signal_name(number)}{because}{core}"


def _exited(code: int) -> str:
    if code == ExitCode.CLEAN:
        return "exited with code 0"
    meaning = _MEANINGS.get(code)  # type: ignore[call-overload]
    return f"exited with code {code}" + (f" ({meaning})" if meaning else "")


def signal_name(number: int) -> str:
    """SIGSEGV for 11; `signal 40` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
