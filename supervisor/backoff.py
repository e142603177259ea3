"""How long to wait before trying again, and how much trying a host can bear.

Two brakes. `Backoff` is one slot's: it waits longer after every death, with full jitter (a random
share of an exponentially growing limit, as in AWS's architecture blog, "Exponential Backoff And
Jitter"). `TokenBucket` is everybody's: whatever the slots do, so many new processes a second and
no more.
"""

from __future__ import annotations

import random


class Backoff:
    """Delays in seconds, from none up to `most`."""

    def __init__(self, first: float = 0.1, most: float = 30.0) -> None:
        self._first = first
        self._most = most
        self._failures = 0

    def next_delay(self, most: float | None = None) -> float:
        """How long to wait after one more failure. `most` lowers the limit for this one."""
        limit = min(self._first * 2.0 ** min(self._failures, 32), most or self._most, self._most)
        self._failures += 1
        return random.uniform(0.0, limit)  # noqa: S311 - spreads a load, keeps no secret

    def reset(self) -> None:
        """It has been well."""
        self._failures = 0


class TokenBucket:
    """`burst` at once, `rate` a second in the long run. Time is the caller's, in seconds."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float) -> bool:
        """Takes one, if there is one."""
        self._refill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def seconds_until_next(self, now: float) -> float:
        """0.0 when `take` would succeed."""
        self._refill(now)
        return max(0.0, (1.0 - self._tokens) / self._rate)

    def _refill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
