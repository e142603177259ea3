"""How long to wait before the next attempt: the shape of Google Cloud Tasks, as one formula.

`least` doubles `doublings` times, then grows by its last doubled value each time, never above
`most`; the last fifth is chance, so that what failed together does not come back together. A slot
(for the class of an error) and the supervisor (for a type) ask the same function. Source of the
shape: Cloud Tasks' RetryConfig, "minBackoff, maxBackoff, maxDoublings".
"""

from __future__ import annotations

import random
from collections.abc import Callable

#: `random.random`, or what a test puts in its place.
Chance = Callable[[], float]

#: How much of a wait is left to chance.
JITTER = 0.2
#: So many steps beyond the doublings lead to `most` from wherever it began; more would not fit a
#: float.
_MOST_STEPS = 2**53


def backoff_seconds(
    least: float, most: float, doublings: int, failures: int, chance: Chance = random.random
) -> float:
    """Seconds to wait after the `failures`-th failure (from 1), whatever number that is."""
    before = max(0, failures - 1)
    doubled = min(before, doublings)
    steps = min(before - doubled, _MOST_STEPS)
    full = min(most, least * 2.0**doubled * (1 + steps))
    return full * (1 - JITTER + JITTER * chance())
