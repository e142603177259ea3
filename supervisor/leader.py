"""The leader: one supervisor of all does what needs doing once.

The lock is an optimisation, not a safety: whatever a leader does is fenced, unique or skips what
others hold, so that two leaders for a moment are harmless. The lock lives on a direct connection
of its own, which PostgreSQL ends by itself if the leader freezes (`idle_session_timeout`; a frozen
process's kernel goes on answering keepalives), and the leader asks before each duty whether that
very connection still holds it. A pooler that comes in between ends it: a `Link` refuses to connect
through one, and the supervisor leaves. A leader that is frozen, or cut off, is followed within
`FROZEN_AFTER` and `CALM_SECONDS`; one that leaves says so, and is followed at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

import psycopg

from jobctl.store.link import Link, Unreachable
from jobctl.supervisor.alarm import Alarm

#: The leader's connection is ended by PostgreSQL after this long without a word from it.
FROZEN_AFTER = "10s"
#: A leader says something at least this often.
PING_SECONDS = 3.0
#: How often to try for the lock, when somebody seems to lead and when nobody does.
CALM_SECONDS, EAGER_SECONDS = 16.0, 3.0
#: How often to ask whether this host may lead: it has a session, and the schema is its own.
SHY_SECONDS = 0.5
#: When the others hear that nobody leads, they do not all try in the same moment.
SPREAD_SECONDS = 0.5


@dataclass(slots=True)
class Duty:
    """Something to do every so often, while leading. An error of one is no other's.

    A step that knows when it has something to do next returns in how many seconds; `every` is the
    longest that it is left alone.
    """

    name: str
    every: float
    step: Callable[[Link], Awaitable[float | None]]
    due_at: float = 0.0


class Leader:
    """Tries to lead; while it does, does its duties."""

    def __init__(
        self,
        link: Link,
        duties: Sequence[Duty],
        on_change: Callable[[bool], None],
        on_done: Callable[[str], None],
        on_error: Callable[[str, BaseException], None],
        session: Callable[[], int],
        somebody_leads: Callable[[], bool],
    ) -> None:
        """`session` is what it leads as; 0: it may not lead."""
        self.leads = False
        self._link = link
        self._duties = duties
        self._on_change = on_change
        self._on_done = on_done
        self._on_error = on_error
        self._session = session
        self._somebody_leads = somebody_leads
        self._alarm = Alarm()

    def hurry(self, duty: str) -> None:
        """This duty is due now, because something has changed."""
        for each in self._duties:
            if each.name == duty:
                each.due_at = 0.0
        if self.leads:
            self._alarm.set()

    def try_now(self) -> None:
        """Nobody seems to lead any more."""
        if not self.leads:
            self._alarm.set()

    async def run(self) -> None:
        """For ever: try; while leading, do what is due."""
        while True:
            try:
                if self._session():
                    await self._link.connect()
                    if await self._try():
                        await self._lead()
            except Unreachable:
                pass  # whoever is next will do it; we try again
            except psycopg.Error as error:
                self._on_error("lead", error)
            finally:
                self._change(False)
                await self._link.close()
            await self._pause()

    async def _pause(self) -> None:
        if not self._session():
            wait = SHY_SECONDS
        else:
            wait = CALM_SECONDS if self._somebody_leads() else EAGER_SECONDS
        wait *= random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        if await self._alarm.wait(monotonic() + wait):
            await asyncio.sleep(random.uniform(0, SPREAD_SECONDS))  # noqa: S311 - jitter

    async def _try(self) -> bool:
        ((taken,),) = await self._link.run("try_lead", backend=self._link.backend_pid())
        return bool(taken)

    async def _lead(self) -> None:
        for duty in self._duties:
            duty.due_at = 0.0
        self._change(True)
        await self._link.run("mark_leader", session=self._session())
        while True:
            ((holds,),) = await self._link.run("still_leads", backend=self._link.backend_pid())
            if not holds or not self._session():
                return
            duty = min(self._duties, key=lambda each: each.due_at)
            if duty.due_at <= monotonic():
                await self._do(duty)
            else:
                await self._rest(min(monotonic() + PING_SECONDS, duty.due_at))

    async def _rest(self, until: float) -> None:
        """Until then, or until somebody hurries, or the connection says that it is at its end."""
        loop = asyncio.get_running_loop()
        descriptor = self._link.descriptor()
        if descriptor is None:
            return

        def readable() -> None:
            if not self._link.take_notifications():
                loop.remove_reader(descriptor)
                self._alarm.set()

        loop.add_reader(descriptor, readable)
        try:
            await self._alarm.wait(until)
        finally:
            loop.remove_reader(descriptor)

    async def _do(self, duty: Duty) -> None:
        latest = monotonic() + duty.every * random.uniform(0.9, 1.0)  # noqa: S311 - jitter
        duty.due_at = latest
        try:
            wait = await duty.step(self._link)
        except Unreachable:
            raise
        except Exception as error:
            # Of whatever kind: the other duties must go on, and this one is tried again. The fault
            # is logged, and its time of success grows old in the metrics.
            self._on_error(duty.name, error)
        else:
            self._on_done(duty.name)
            if wait is not None:
                # Unless somebody was in a hurry meanwhile.
                duty.due_at = min(duty.due_at, latest, monotonic() + wait)

    def _change(self, leads: bool) -> None:
        if leads != self.leads:
            self.leads = leads
            self._on_change(leads)
