"""When to let in who waits for a limit. Pure: told the time and what happened, says when to ask.

A note for whoever lets in comes with a ring, as an enqueue does, and rings are limited to one in
`RING_SPACING_SECONDS`: so whoever is rung asks at once, and once more when the notes that came
silently after that ring are certainly there. The answer says when a rate has its next moment. A
ring that is lost costs one poll. Claims do not ask, and a ring does not make a host ask that has no
idle slot: every host hears it, and it asks when it has one. What is planned is asked for in time,
not in front of the next claim.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf

from jobctl.supervisor.doorbell import AFTER_RING_SECONDS, POLL_SECONDS


class Admission:
    """One dispatcher's sense of when to ask. Moments are any clock's seconds."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._in_use = False  # nobody asks where no job has a limit
        self._at = inf  # planned, or the poll
        self._rung_at = inf
        self._final_at = inf  # the one after the last ring

    def use(self, in_use: bool, now: float) -> None:
        """Whether jobs have limits; what has been left until now is asked for at once."""
        self._in_use = in_use
        self._at = now if in_use else inf
        if not in_use:
            self._rung_at = self._final_at = inf

    def rung(self, now: float) -> None:
        """Somebody rang, perhaps for others too."""
        if self._in_use:
            self._rung_at = now
            self._final_at = now + AFTER_RING_SECONDS

    def next_due(self, room: bool = True) -> float:
        """When to ask, if nothing happens. `room`: whether a slot is idle."""
        return min(self._at, self._rung_at, self._final_at) if room else self._at

    def begins(self, now: float) -> None:
        """The question is on its way: what is left from now on is for the next one."""
        self._rung_at = inf
        if now >= self._final_at:
            self._final_at = inf
        self._at = now + POLL_SECONDS * (0.8 + 0.4 * self._chance()) if self._in_use else inf

    def answered(self, next_in: float | None, now: float) -> None:
        """So many seconds until there is something to do again (None: when somebody rings).

        A little sooner, by chance: what is asked every tenth of a second would keep step with jobs
        that take as long, and all their slots would wait for it in every round.
        """
        if next_in is not None:
            self._at = min(self._at, now + next_in * (0.6 + 0.4 * self._chance()))

    def failed(self) -> None:
        """It was not asked after all."""
        self._at = -inf
