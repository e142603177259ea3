"""Deadlines: when a running attempt is asked to stop, and when it is made to.

Counted by CLOCK_MONOTONIC from the handler's start, which the slot notes in the page that it
shares with us. One alarm for all slots, set to the first thing due; a job with hours to go costs
one comparison.
"""

from __future__ import annotations

from jobctl.supervisor.fleet import Fleet


class Deadlines:
    """Watches what the slots of one fleet run."""

    def __init__(self, fleet: Fleet) -> None:
        raise NotImplementedError

    def enforce(self, now_ns: int) -> None:
        """Sends the soft time-outs and does the kills that are due."""

    def next_due(self) -> int | None:
        """When there is something to do next (monotonic nanoseconds); None: nothing runs."""
        raise NotImplementedError
