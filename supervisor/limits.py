"""What the leader does for limits: mends what no path should leave behind, counts how they stand.

The limits themselves are kept by the statements that let jobs in; nothing here decides about one.
"""

from __future__ import annotations

from typing import Protocol

from jobctl.store.link import Link, Row

#: No count goes beyond this.
LARGEST_COUNT = 10_000


class Limiter(Protocol):
    """Who is told."""

    def on_places_mended(self, places: int) -> None:
        """So many places were held by nobody: a bug, or rows that were changed by hand."""

    def on_limits(self, rows: list[Row]) -> None:
        """Rows of `limit_gauges.sql`."""


class Limits:
    """The leader's duty."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def step(self, link: Link) -> None:
        """Places that nobody holds are given back, whatever limit there is; then who waits beside
        a free place is let in."""
        ((places, _),) = await link.run("mend_limits")
        if places:
            self._limiter.on_places_mended(places)
        self._limiter.on_limits(await link.run("limit_gauges", most=LARGEST_COUNT))
