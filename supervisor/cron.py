"""The leader's cron: fires what is planned, at its planned time, once.

Nothing is remembered between two steps but which crons could not be fired lately: what is due, and
up to where it has been dealt with, is read from the database each time and judged by its clock, so
that a leader can be replaced, or doubled, at any moment. The unit is one transaction a cron.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from time import monotonic
from typing import Protocol

import psycopg

from jobctl.store.cron_spec import CronSpec
from jobctl.store.link import Link
from jobctl.supervisor.misfires import judge

#: How often the declarations of all hosts are made one, if nobody says that they have changed.
RECONCILE_SECONDS = 10.0
#: A cron that no live host has declared for so long fires no more: longer than a deploy takes.
RETIRE_SECONDS = 900.0
#: Retired so long it is forgotten, unless an operator has disabled it.
FORGET_SECONDS = 7 * 86_400.0
#: A cron that could not be fired is tried again after this.
FAILED_SECONDS = 30.0
MOST_AT_ONCE = 500

FIRED, SKIPPED, MISSED = "fired", "skipped", "missed"


class Watcher(Protocol):
    """Who is told about crons: the supervisor."""

    def on_crons(self, late: Mapping[str, float]) -> None:
        """Every cron that is on, with the seconds that it is overdue."""

    def on_fired(self, name: str, result: str, times: int, lag: float | None) -> None:
        """Planned times of this cron came to this; the last one so long after it was planned."""

    def on_cron_failed(self, name: str, error: BaseException) -> None:
        """It could not be fired; it is tried again."""


class Cron:
    """The duty."""

    def __init__(self, watcher: Watcher, clock: Callable[[], float] = monotonic) -> None:
        self._watcher = watcher
        self._clock = clock
        self._generation = -1
        self._reconcile_at = 0.0
        self._not_before: dict[str, float] = {}  # crons that failed

    def look_again(self) -> None:
        """Somebody has changed a declaration or an entry."""
        self._reconcile_at = 0.0

    async def step(self, link: Link) -> float | None:
        """Fires what is due; in how many seconds there will be more to do."""
        if link.generation != self._generation:
            self._generation = link.generation
            self._reconcile_at = 0.0
            self._not_before.clear()
        # What was due is judged by the definition that it was due by, then the new ones count.
        await self._fire_due(link)
        if self._clock() >= self._reconcile_at:
            self._reconcile_at = self._clock() + RECONCILE_SECONDS
            await link.run(
                "reconcile_crons", retire_after=RETIRE_SECONDS, forget_after=FORGET_SECONDS
            )
            await self._fire_due(link)
            self._watcher.on_crons(dict(await link.run("cron_names")))
        return await self._next_in(link)

    async def _fire_due(self, link: Link) -> None:
        for as_of, name, definition, judged_until in await link.run("due_crons", most=MOST_AT_ONCE):
            if self._not_before.get(name, 0.0) > self._clock():
                continue
            try:
                await self._fire(link, as_of, name, definition, judged_until)
                self._not_before.pop(name, None)
            except (psycopg.Error, ValueError) as error:
                # A lost connection is neither. Everything else is this cron's own.
                self._not_before[name] = self._clock() + FAILED_SECONDS
                self._watcher.on_cron_failed(name, error)

    async def _fire(
        self, link: Link, as_of: datetime, name: str, definition: str, judged_until: datetime
    ) -> None:
        spec = CronSpec.from_dict({"name": name, **json.loads(definition)})
        todo = judge(spec, judged_until, as_of)
        rows = await link.run(
            "fire_cron",
            name=name,
            seen=definition,
            as_of=as_of,
            moments=todo.moments,
            too_late=todo.too_late,
            missed=todo.missed,
            then_at=todo.next_at,
        )
        for result in (FIRED, SKIPPED):
            lags = [row[3] for row in rows if row[1] == result]
            if lags:
                self._watcher.on_fired(name, result, len(lags), lags[-1])
        if rows and todo.missed:
            self._watcher.on_fired(name, MISSED, todo.missed, None)

    async def _next_in(self, link: Link) -> float:
        now = self._clock()
        waits = [self._reconcile_at - now]
        held = [moment for moment in self._not_before.values() if moment > now]
        waits += [moment - now for moment in held]
        # What has failed is due all the time, and must not keep us busy.
        ((next_in,),) = await link.run("next_cron", only_later=bool(held))
        if next_in is not None:
            waits.append(next_in)
        return max(0.0, min(waits))
