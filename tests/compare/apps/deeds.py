"""What the jobs do: the same lines for every system, and a diary of when they did it.

A job has a name, under which the diary knows it, and a deed. Nothing here knows any queue, and
nothing but the standard library is imported. Times are CLOCK_MONOTONIC, one clock for all
processes of a machine.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.compare.apps.terms import Terms

NAP = 0.02
FATAL_AFTER = 1.0  # its neighbours have begun by then
MUTEX_BYTES = 64  # more than any pthread_mutex_t of Linux; all zeros is PTHREAD_MUTEX_INITIALIZER


def perform(name: str, deed: str) -> None:
    """Does it, between a line "start" and a line "end"; "left" if an exception ends it."""
    terms = Terms.from_environment()
    run = note(terms.folder, name, "start")
    try:
        DEEDS[deed](terms, name, run)
    except BaseException:  # time limits come as exceptions of any kind
        note(terms.folder, name, "left")
        raise
    note(terms.folder, name, "end")


def note(folder: Path, name: str, what: str) -> int:
    """Adds a line, and returns how many such lines there are by now."""
    line = f"{time.monotonic():.3f} {name} {what} {os.getpid()}\n"
    file = os.open(folder / "diary", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())  # one write: lines of several processes do not mix
    finally:
        os.close(file)
    lines = (folder / "diary").read_text().splitlines()
    return sum(each.split()[1:3] == [name, what] for each in lines)


def _quick(terms: Terms, name: str, run: int) -> None:
    pass


def _slow(terms: Terms, name: str, run: int) -> None:
    time.sleep(terms.slow)


def _gauge(terms: Terms, name: str, run: int) -> None:
    """Keeps a slot until all gauges are told to leave."""
    _wait_for(terms.folder / "gauges.go")


def _held(terms: Terms, name: str, run: int) -> None:
    """Each run of it can be told to end."""
    _wait_for(terms.folder / f"{name}.{run}.go")


def _kill9(terms: Terms, name: str, run: int) -> None:
    """As the OOM killer does it, and much like a segmentation fault."""
    time.sleep(FATAL_AFTER)
    note(terms.folder, name, "dies")
    os.kill(os.getpid(), signal.SIGKILL)


def _deadlock_with_gil(terms: Terms, name: str, run: int) -> None:
    """In C, with the interpreter's lock held; signals are taken and change nothing."""
    _deadlock(ctypes.PyDLL(None))


def _deadlock_without_gil(terms: Terms, name: str, run: int) -> None:
    """The same with the lock released: other threads go on."""
    _deadlock(ctypes.CDLL(None))


def _loop(terms: Terms, name: str, run: int) -> None:
    while True:
        pass


def _wakes(terms: Terms, name: str, run: int) -> None:
    """pause(2) returns after any signal that has a handler; then the job says that it is done."""
    ctypes.CDLL(None).pause()


def _deadlock(libc: ctypes.CDLL) -> None:
    mutex = ctypes.create_string_buffer(MUTEX_BYTES)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def _wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(NAP)


DEEDS: dict[str, Callable[[Terms, str, int], None]] = {
    "quick": _quick,
    "slow": _slow,
    "gauge": _gauge,
    "held": _held,
    "kill9": _kill9,
    "gil": _deadlock_with_gil,
    "c": _deadlock_without_gil,
    "loop": _loop,
    "wakes": _wakes,
}
