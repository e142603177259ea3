"""A lock on a file that the kernel drops with its last holder.

Whoever holds it may hand it to a child by letting the child inherit the descriptor:
the lock then lasts until the child, and all that it forked, are gone, however they
ended. That is how a server's data directory is known to be in use or free without
trusting any process id.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobctl.store.binaries import EmbeddedError


@contextmanager
def held(path: Path, *, within: float, otherwise: str) -> Iterator[int]:
    """Hold the lock on `path` and yield its descriptor; wait `within` seconds for it.

    Raises EmbeddedError with the sentence `otherwise` if somebody else keeps it.
    """
    descriptor = _acquire(path, time.monotonic() + within, otherwise)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock at this moment."""
    try:
        with held(path, within=0, otherwise=""):
            return True
    except EmbeddedError:
        return False


def _acquire(path: Path, until: float, otherwise: str) -> int:
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_there(path, descriptor):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(descriptor)
                raise EmbeddedError(otherwise) from None
            time.sleep(0.01)  # flock() knows no time limit, so the wait for it is a poll
        os.close(descriptor)


def _still_there(path: Path, descriptor: int) -> bool:
    """False if the file was removed, and perhaps made anew, while this lock was waited for."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
