"""The lease: until when this host may run what it has claimed, and the bell beside it.

One row for the host is renewed, whatever it runs. A host that cannot renew must have stopped its
jobs before anybody else may start them, so the lease ends here a margin earlier than in the
database, by a clock that also counts while the machine sleeps. The same connection listens for
the doorbell, because both are what a host needs when nothing happens.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable, Sequence
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Any, Protocol

import psycopg

from jobctl.store.link import Link, Row, Unreachable
from jobctl.store.rights import Kind, arequire
from jobctl.store.schema_check import acheck
from jobctl.supervisor.alarm import Alarm
from jobctl.supervisor.identity import Identity, new_session_id, proven_dead
from jobctl.supervisor.outcomes import Ending

#: The part of a lease after which it is renewed.
RENEWALS_PER_LEASE = 4
#: A host gives up this much before its lease ends in the database, or a third, whichever is less.
LARGEST_MARGIN = 10.0
#: What PostgreSQL refuses for reasons of its own is asked again after this.
REFUSED_SECONDS = 1.0


class Holder(Protocol):
    """Who holds the lease: the supervisor."""

    def facts(self) -> dict[str, Any]:
        """What the session's row says of this host: draining, busy, leader, types."""

    def on_session(self, session_id: int) -> None:
        """A new session is registered: claim under it from now on."""

    def on_session_lost(self) -> None:
        """The session was declared dead: nothing that was claimed under it is ours any more."""

    async def on_earlier_sessions_dead(self, count: int, link: Link) -> None:
        """So many lives of this host are proven dead and buried; reclaim what they held."""

    def on_renewal(self, result: str) -> None:
        """renewed | failed (nobody answered) | refused (the session is dead, or an error)."""

    def on_told(self, drain_requested: bool, another_leads: bool) -> None:
        """What a renewal has brought back."""

    def on_refused(self, statement: str, error: psycopg.Error) -> None:
        """PostgreSQL refused this, or an errand for what was in it."""

    def on_cancels(self, rows: Sequence[Row]) -> None:
        """All that this session holds and somebody wants ended: rows of `read_cancels.sql`."""

    def on_ring(self) -> None:
        """The doorbell."""

    def on_announcement(self) -> None:
        """Queues or lanes have changed."""


def boottime() -> float:
    """Seconds, counted also while the machine is suspended; not a wall clock."""
    return clock_gettime(CLOCK_BOOTTIME)


class Lease:
    """Keeps one session alive over one link."""

    def __init__(
        self,
        link: Link,
        holder: Holder,
        identity: Identity,
        seconds: float,
        slots: int,
        queues: tuple[str, ...] | None,
        schema: str,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self.session_id = 0
        self._link = link
        self._holder = holder
        self._identity = identity
        self.seconds = seconds
        self._margin = min(seconds / 3, LARGEST_MARGIN)
        self._slots = slots
        self._queues = queues
        self._schema = schema
        self._clock = clock
        self._ends_at = 0.0
        self._renew_at = 0.0  # the loop's clock
        self._errands: deque[tuple[str, dict[str, Any]]] = deque()
        self._ask_for_cancels = False
        self._alarm = Alarm()
        self._watched: int | None = None
        link.notified = self._on_notification

    def over(self) -> bool:
        """Whether this host must not run anything: another may be about to."""
        return self._clock() >= self._ends_at

    def ends_in(self) -> float:
        """Seconds until `over`."""
        return self._ends_at - self._clock()

    def hurry(self) -> None:
        """Renews now, because the facts have changed."""
        self._renew_at = 0.0
        self._alarm.set()

    def errand(self, statement: str, **parameters: Any) -> None:
        """Runs this statement between renewals: small things that a lone host must write.

        Tried until PostgreSQL has answered; what it refuses is reported and dropped.
        """
        self._errands.append((statement, parameters))
        self._alarm.set()

    def has_errand(self, statement: str) -> bool:
        """Whether one with this statement is not run yet."""
        return any(name == statement for name, _ in self._errands)

    async def run(self) -> None:
        """For ever: register, listen, renew. Raises SchemaError."""
        loop = asyncio.get_running_loop()
        while True:
            await self._link.ready()
            try:
                await self._begin()
                while self._link.up:
                    self._watch()
                    await self._alarm.wait(self._renew_at)
                    self._unwatch()
                    if loop.time() >= self._renew_at:
                        await self._renew()
                    await self._read_cancels()
                    await self._run_errands()
            except Unreachable:
                self._holder.on_renewal("failed")
            except psycopg.Error as error:
                self._holder.on_renewal("refused")
                self._holder.on_refused("what keeps the lease", error)
                self._link.drop()
                await asyncio.sleep(REFUSED_SECONDS)
            finally:
                self._unwatch()

    async def _read_cancels(self) -> None:
        """Told by the channel, and asked with every renewal in case that was not heard."""
        if self._ask_for_cancels and self.session_id:
            rows = await self._link.run("read_cancels", session=self.session_id)
            self._ask_for_cancels = False
            self._holder.on_cancels(rows)

    async def _run_errands(self) -> None:
        while self._errands:
            statement, parameters = self._errands[0]
            try:
                await self._link.run(statement, **parameters)
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                self._holder.on_refused(statement, error)
            self._errands.popleft()

    async def end(self) -> None:
        """Takes the session off the books, once everything that it ran is written.

        What it still claims was claimed by a statement that was cut off: nobody has heard of it, so
        it never started. It goes back; with the session gone it would be taken for lost.
        """
        session, self.session_id = self.session_id, 0
        self._ends_at = 0.0
        if not session or not self._link.up:
            return
        claims = await self._link.run("session_claims", session=session)
        if claims:
            endings = [Ending(job, session, token, "front").to_dict() for job, token in claims]
            jobs = [job for job, _ in claims]
            await self._link.run("settle_ended", jobs=jobs, endings=json.dumps(endings))
        await self._link.run("end_session", session=session)

    async def _begin(self) -> None:
        await acheck(self._link.connection, self._schema)
        await arequire(self._link.connection, Kind.WORKER, self._schema)
        ((channel,),) = await self._link.execute("channel", "SELECT channel()")
        await self._link.listen(channel)
        if self.session_id:
            await self._renew()
        if not self.session_id:
            await self._register()
        self._holder.on_announcement()  # whatever was said while nobody listened

    async def _register(self) -> None:
        session, begun = new_session_id(), self._clock()
        me = self._identity
        await self._link.run(
            "register_session",
            session=session,
            host=me.host,
            machine_id=me.machine_id,
            boot_id=me.boot_id,
            pid_namespace=me.pid_namespace,
            pid=me.pid,
            pid_start=me.pid_start,
            version=me.version,
            slots=self._slots,
            queues=None if self._queues is None else list(self._queues),
            types=self._holder.facts()["types"],
            lease=self.seconds,
        )
        await self._bury_earlier(session)
        self.session_id = session
        self._lasts_from(begun)
        self._holder.on_session(session)

    def _lasts_from(self, begun: float) -> None:
        self._ends_at = begun + self.seconds - self._margin
        wait = self.seconds / RENEWALS_PER_LEASE * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        self._renew_at = asyncio.get_running_loop().time() + wait

    async def _bury_earlier(self, session: int) -> None:
        rows = await self._link.run("earlier_sessions", host=self._identity.host, session=session)
        dead = [row[0] for row in rows if proven_dead(self._identity, *row[1:])]
        if dead:
            because = "its supervisor died and was started again"
            await self._link.run("bury_sessions", sessions=dead, because=because)
            await self._holder.on_earlier_sessions_dead(len(dead), self._link)

    async def _renew(self) -> None:
        begun = self._clock()
        rows = await self._link.run(
            "renew_session", session=self.session_id, lease=self.seconds, **self._holder.facts()
        )
        if not rows:
            self._holder.on_renewal("refused")
            self.session_id = 0
            self._ends_at = 0.0
            self._holder.on_session_lost()
            await self._register()
            return
        self._lasts_from(begun)
        self._ask_for_cancels = True
        self._holder.on_renewal("renewed")
        ((drain_requested, another_leads),) = rows
        self._holder.on_told(drain_requested, another_leads)

    # The bell ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Nothing runs on the link: watch its socket for notifications."""
        descriptor = self._link.descriptor()
        if descriptor is not None:
            asyncio.get_running_loop().add_reader(descriptor, self._on_readable)
            self._watched = descriptor
            self._on_readable()  # what came between the last answer and now

    def _unwatch(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            self._watched = None

    def _on_readable(self) -> None:
        if not self._link.take_notifications():
            self._unwatch()
            self._alarm.set()

    def _on_notification(self, payload: str) -> None:
        if payload == "look":
            self._holder.on_announcement()
        elif payload.startswith("cancel "):
            if payload == f"cancel {self.session_id}":
                self._ask_for_cancels = True
                self._alarm.set()
        else:
            self._holder.on_ring()
