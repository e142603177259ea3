"""The leader: one supervisor of all does what needs doing once.

The lock is an optimisation, not a safety: whatever a leader does is fenced, unique or skips what
others hold, so that two leaders for a moment are harmless. The lock lives on a direct connection
of its own, which PostgreSQL ends by itself if the leader freezes (`idle_session_timeout`; a frozen
process's kernel goes on answering keepalives), and the leader asks before each duty whether that
very connection still holds it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

import psycopg

from jobctl.store.link import Link, Unreachable

#: The leader's connection is ended by PostgreSQL after this long without a word from it.
FROZEN_AFTER = "10s"
#: A leader says something at least this often.
PING_SECONDS = 3.0
#: How often to try for the lock, when somebody seems to lead and when nobody does.
CALM_SECONDS, EAGER_SECONDS = 20.0, 3.0
#: How often to ask whether this host may lead: it has a session, and the schema is its own.
SHY_SECONDS = 0.5


@dataclass(slots=True)
class Duty:
    """Something to do every so often, while leading. An error of one is no other's."""

    name: str
    every: float
    step: Callable[[Link], Awaitable[None]]
    due_at: float = 0.0


class Leader:
    """Tries to lead; while it does, does its duties."""

    def __init__(
        self,
        link: Link,
        duties: Sequence[Duty],
        on_change: Callable[[bool], None],
        on_error: Callable[[str, BaseException], None],
        may_lead: Callable[[], bool],
        somebody_leads: Callable[[], bool],
    ) -> None:
        self.leads = False
        self._link = link
        self._duties = duties
        self._on_change = on_change
        self._on_error = on_error
        self._may_lead = may_lead
        self._somebody_leads = somebody_leads

    async def run(self) -> None:
        """For ever: try; while leading, do what is due."""
        while True:
            try:
                if self._may_lead():
                    await self._link.connect()
                    if await self._try():
                        await self._lead()
            except (Unreachable, psycopg.Error):
                pass  # whoever is next will do it; we try again
            finally:
                self._change(False)
                await self._link.close()
            if not self._may_lead():
                wait = SHY_SECONDS
            else:
                wait = CALM_SECONDS if self._somebody_leads() else EAGER_SECONDS
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - jitter

    async def _try(self) -> bool:
        ((taken,),) = await self._link.run("try_lead")
        return bool(taken)

    async def _lead(self) -> None:
        for duty in self._duties:
            duty.due_at = 0.0
        self._change(True)
        while True:
            ((holds,),) = await self._link.run("still_leads", backend=self._link.backend_pid())
            if not holds or not self._may_lead():
                return
            duty = min(self._duties, key=lambda each: each.due_at)
            if duty.due_at <= monotonic():
                duty.due_at = monotonic() + duty.every * random.uniform(0.9, 1.0)  # noqa: S311
                try:
                    await duty.step(self._link)
                except psycopg.Error as error:
                    self._on_error(duty.name, error)
            else:
                await asyncio.sleep(min(PING_SECONDS, duty.due_at - monotonic()))

    def _change(self, leads: bool) -> None:
        if leads != self.leads:
            self.leads = leads
            self._on_change(leads)
