"""So many a second, and a burst: how much of what happens often is said one by one."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class Quota:
    """A bucket that fills at `rate` a second up to `burst`. What it refuses, it counts."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        self.refused = 0
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._left = float(burst)
        self._at = clock()

    def take(self) -> bool:
        """Whether one more may be said now."""
        if self._left < 1.0:
            self._fill()
            if self._left < 1.0:
                self.refused += 1
                return False
        self._left -= 1.0
        return True

    def take_refused(self) -> int:
        """How many were refused since somebody asked."""
        refused, self.refused = self.refused, 0
        return refused

    def _fill(self) -> None:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
