"""A process that dies in the middle of a handler, for real: after any of its lines.

The attempt runs in a forked child, which leaves by `os._exit` once the line has been executed: no
`except` or `finally` runs, nothing is flushed, and connections that the handler opened are cut off
by the kernel. What the child changed outside - files, databases, providers - is all that is left.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final

from jobctl.store.json_values import arguments_text
from jobctl.testing.inline import attempt
from jobctl.workerproc.job import Job

_DIED: Final = 77
_FAILED: Final = 78
_MOST: Final = 10_000


@dataclass(frozen=True)
class Crash:
    """The process has died after this line of the handler; 0: before its first one."""

    line: int
    number: int  # the how-manieth that it executed


def crashes(job: Job[..., Any], /, **arguments: Any) -> Iterator[Crash]:
    """Runs the handler again and again, each time in a process that dies one line later.

    After each, the test sees what is left, and may run the job as the next attempt would:

        for crash in jobctl.testing.crashes(charge, payment_id=7):
            jobctl.testing.run(charge, payment_id=7)
            assert bank.charges == 1, crash
            bank.reset()

    Ends when the handler was through before the line came. Objects of the test are the child's
    copies there: only what is outside of the process is seen afterwards.
    """
    arguments_text(arguments)
    for number in range(_MOST):
        line = dies(lambda: attempt(job, arguments), job.handler.__code__, number)
        if line is None:
            return
        yield Crash(line, number)
    raise AssertionError(f"{job.job_type.name} has executed {_MOST} lines and goes on")


def dies(work: Callable[[], object], code: CodeType, number: int) -> int | None:
    """Does the work in a child that dies after `number` lines of this code; which line that was.
    None: it was through before. Raises AssertionError when it has ended in any other way."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _die_in(work, code, number, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    if ended == _DIED:
        return int(said)
    if ended != 0:
        raise AssertionError(f"the child ended with {ended}: {said.decode(errors='replace')}")
    return None


def _die_in(work: Callable[[], object], code: CodeType, number: int, writer: int) -> None:
    """The child's whole life."""
    left = number
    last = 0

    def die() -> None:
        os.write(writer, str(last).encode())
        os._exit(_DIED)

    def in_handler(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left, last
        if event in ("line", "return"):
            if left == 0:
                die()
            left -= 1
            last = frame.f_lineno
        return in_handler

    def in_all(frame: FrameType, event: str, argument: object) -> Any:
        return in_handler if frame.f_code is code else None

    try:
        sys.settrace(in_all)
        work()
        sys.settrace(None)
        os._exit(0)
    except BaseException as error:
        os.write(writer, f"{type(error).__name__}: {error}".encode(errors="replace"))
        os._exit(_FAILED)
