"""The census: how many jobs were enqueued, counted by the leader after the fact.

Enqueues are transactions of others, in any language; nobody but the database sees them all, and a
counter in their way would make them wait for each other. So the leader counts new rows by their
numbers, some seconds later, once no transaction is open any more that could still commit a lower
number. What was counted is remembered in the database, so that each job is counted once, whoever
leads; a transaction that stays open makes the count late, not wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Protocol

from jobctl.store.link import Link

#: How often to count while there is nothing to hurry for.
CENSUS_SECONDS = 5.0
#: The most numbers that are looked at in one step.
LARGEST_STEP = 50_000
#: Counting takes at most this part of the time.
SHARE = 1 / 20


class Registrar(Protocol):
    """Who keeps the figures."""

    def on_enqueued(self, rows: Iterable[tuple[str, str, int, bool]]) -> None:
        """So many more jobs of a queue and a type, which some host has registered or not, were
        enqueued; nobody is told of them again."""


class Census:
    """Counts what is new."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar

    async def step(self, link: Link) -> float:
        """Counts what can be counted; returns when to count next, in seconds."""
        begun = monotonic()
        ((counted_to, next_to, settled, newest),) = await link.run("read_enqueue_mark")
        if not settled:
            return CENSUS_SECONDS
        up_to = min(next_to, counted_to + LARGEST_STEP)
        rows = []
        if up_to > counted_to:
            rows = await link.run("count_enqueued", after=counted_to, up_to=up_to)
        elif newest <= next_to:
            return CENSUS_SECONDS
        complete = up_to == next_to
        moved = await link.run(
            "move_enqueue_mark",
            counted_from=counted_to,
            counted_to=up_to,
            next_to=max(newest, next_to) if complete else next_to,
        )
        if moved:
            self._registrar.on_enqueued((row[0], row[1], row[2], row[3]) for row in rows)
        took = (monotonic() - begun) / SHARE
        return max(CENSUS_SECONDS, took) if complete else took
