"""Patience with an end: what is inside is cut off after so many seconds, whatever it waits for.

For commands that others wait for: a monitoring system, a shell that completes a word. It rests on
SIGALRM, so it works in the main thread of a process, and there is one at a time.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class PatienceOver(Exception):
    """It took too long."""


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raises PatienceOver inside after so many seconds. Another timer is put back afterwards."""

    def over(number: int, frame: FrameType | None) -> None:
        raise PatienceOver

    handler = signal.signal(signal.SIGALRM, over)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, handler)
