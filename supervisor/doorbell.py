"""The doorbell: when to look for work. Pure: told the time and what happened, says what is due.

An enqueue rings only if nobody has rung within `RING_SPACING_SECONDS`, because a notification in
every producer's transaction would make their commits queue up behind one another. So whoever is
rung looks at once, and goes on for a little longer than that spacing: it peeks at the sequence
(one page) every few milliseconds and looks when a number was taken, and it looks once more at the
end whatever it has seen. A ring that is lost - rolled back, or sent before somebody else's late
commit - costs one poll; every poll looks below the marks, and once a minute one starts from 0.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum, auto
from math import inf

from jobctl.supervisor.lanes import Look

#: Rings are limited to one in this time, by `ring` in the schema.
RING_SPACING_SECONDS = 0.020
#: How long after a ring others may still have enqueued silently: the spacing, and some slack for
#: clocks that are read in different places.
AFTER_RING_SECONDS = RING_SPACING_SECONDS * 1.1
PEEK_SECONDS = 0.005
POLL_SECONDS = 1.0
WHOLE_SECONDS = 60.0

Chance = Callable[[], float]


class Due(Enum):
    """What is not a look."""

    PEEK = auto()


class Doorbell:
    """One dispatcher's sense of when to look. Moments are any clock's seconds."""

    def __init__(self, chance: Chance = random.random) -> None:
        self._chance = chance
        self._wanted = False  # a look is due at once
        self._final_at = inf  # the look after the last ring
        self._peek_at = inf
        self._poll_at = 0.0
        self._whole_at = 0.0
        self._highest = 0  # the highest number that was claimed, or looked for

    def rung(self, now: float) -> None:
        """Somebody rang, perhaps for others too."""
        self._wanted = True
        self._final_at = now + AFTER_RING_SECONDS
        self._peek_at = now + PEEK_SECONDS

    def forget(self) -> None:
        """Nothing that rests on an old connection holds: the next look is from 0."""
        self._whole_at = 0.0
        self._highest = 0

    def due(self, now: float) -> Look | Due | None:
        """What to do now, if there is room for a job."""
        if now >= self._whole_at:
            return Look.WHOLE
        if now >= self._poll_at:
            return Look.BELOW
        if self._wanted or now >= self._final_at:
            return Look.ABOVE
        if now >= self._peek_at:
            return Due.PEEK
        return None

    def next_due(self, now: float) -> float:
        """When something is due, if nothing happens."""
        if self._wanted:
            return now
        return min(self._whole_at, self._poll_at, self._final_at, self._peek_at)

    def begins(self, look: Look, now: float) -> None:
        """A look begins: whatever is committed from now on is for the next one."""
        self._wanted = False
        if now >= self._final_at:
            self._final_at = self._peek_at = inf
        if look is Look.WHOLE:
            self._whole_at = now + WHOLE_SECONDS * self._jitter()
        if look is not Look.ABOVE:
            self._poll_at = now + POLL_SECONDS * self._jitter()

    def brought(self, highest: int, more: bool) -> None:
        """The look has ended: the highest number it brought (0: none), and if more is waiting."""
        self._highest = max(self._highest, highest)
        self._wanted = self._wanted or more

    def failed(self) -> None:
        """The look did not happen after all."""
        self._wanted = True

    def peeked(self, number: int, now: float) -> None:
        """The last number that anybody has taken."""
        self._peek_at = now + PEEK_SECONDS
        if number > self._highest:
            self._highest = number
            self._wanted = True

    def _jitter(self) -> float:
        return 0.8 + 0.4 * self._chance()
