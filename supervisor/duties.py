"""What the leader does: each a step that tests can call, safe to be done by two at once."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

from psycopg import errors, sql

from jobctl.store.link import Link, Row
from jobctl.supervisor.cron import Cron, Watcher
from jobctl.supervisor.leader import Duty
from jobctl.supervisor.reclaim import reclaim
from jobctl.supervisor.settle import Settlement

#: A lease is over for the reaper this much after it is over for the database.
GRACE_SECONDS = 5.0
#: Added to a lease for the amnesty after the database itself was away.
AMNESTY_SECONDS = 15.0
#: The most rows that one sweep removes.
LARGEST_SWEEP = 5_000
#: No count in the metrics goes beyond this.
LARGEST_COUNT = 100_000
#: Counting takes at most this part of the time, however much there is to be counted.
COUNTING_SHARE = 1 / 20
GAUGES_SECONDS = 10.0


class Fleetwide(Watcher, Protocol):
    """What duties need of the supervisor that leads."""

    def settle(self, settlement: Settlement) -> None:
        """Through the one door."""

    def pending(self, session: int, token: int) -> bool:
        """Whether this claim's ending waits to be written here."""

    def database_was_away_at(self) -> float:
        """When a connection of this host was last found lost (monotonic; 0: never)."""

    def on_sessions_expired(self, hosts: list[str]) -> None:
        """Leases that are over."""

    def on_gauges(self, rows: list[Row]) -> None:
        """Rows of `gauges.sql`."""

    def on_unrunnable(self, rows: list[Row]) -> None:
        """Rows of `read_unrunnable.sql`."""

    def on_oldest_transaction(self, seconds: float) -> None:
        """Of this database."""


class Reaper:
    """Ends the claims of hosts whose lease is over.

    After the database itself was away nobody can have renewed, so nobody's lease is judged until
    everybody has had a lease's time to come back (the amnesty), counted from this connection.
    """

    def __init__(self, fleet: Fleetwide, lease: float, clock: Callable[[], float] = monotonic):
        self._fleet = fleet
        self._lease = lease
        self._clock = clock
        self._generation = -1
        self._amnesty_until = 0.0

    async def step(self, link: Link) -> None:
        """Expires leases, unless there is an amnesty, and reclaims what is lost."""
        if link.generation != self._generation:
            await self._consider_amnesty(link)
            self._generation = link.generation
        if self._clock() < self._amnesty_until:
            return
        expired = await link.run("expire_sessions", grace=GRACE_SECONDS)
        if expired:
            self._fleet.on_sessions_expired([row[1] for row in expired])
        await reclaim(link, self._fleet.settle, self._fleet.pending)

    async def _consider_amnesty(self, link: Link) -> None:
        ((server_age,),) = await link.run("server_age")
        patience = self._lease + AMNESTY_SECONDS
        away_at = self._fleet.database_was_away_at()
        lately = away_at > 0 and self._clock() - away_at < patience
        away = server_age < patience or lately
        self._amnesty_until = self._clock() + patience if away else 0.0


class Housekeeping:
    """History's partitions, and rows whose time is over."""

    def __init__(self, keep: float) -> None:
        self._keep = keep

    async def partitions(self, link: Link) -> None:
        """Makes those ahead and drops those behind, without waiting for whoever reads them."""
        await link.execute("make_history_partitions", "SELECT make_history_partitions()")
        for (name,) in await link.run("old_history", keep=self._keep):
            # Dropping takes a lock on all of history: a reader makes us come back later rather
            # than make every settle wait behind us.
            await link.execute("set", "SELECT set_config('lock_timeout', '200ms', false)")
            try:
                drop = sql.SQL("DROP TABLE {}").format(sql.Identifier(name))
                await link.execute("drop_history", drop.as_string())
            except errors.LockNotAvailable:
                return
            finally:
                await link.execute("set", "SELECT set_config('lock_timeout', '2s', false)")

    async def sweep(self, link: Link) -> None:
        """A bounded number of rows a step."""
        await link.run("sweep_keys", most=LARGEST_SWEEP)
        await link.run("sweep_attempts", keep=self._keep, most=LARGEST_SWEEP)
        await link.run("sweep_sessions")
        await link.run("sweep_lanes")
        await link.run("sweep_cron_fires", keep=self._keep, most=LARGEST_SWEEP)


class Gauges:
    """The numbers of the whole fleet, for the leader's metrics; never asked by a scrape."""

    def __init__(self, fleet: Fleetwide) -> None:
        self._fleet = fleet

    async def step(self, link: Link) -> float:
        """Counts, up to a bound, and the more rarely the longer it takes."""
        begun = monotonic()
        self._fleet.on_gauges(await link.run("gauges", most=LARGEST_COUNT))
        ((age,),) = await link.run("oldest_transaction")
        self._fleet.on_oldest_transaction(age)
        return max(GAUGES_SECONDS, (monotonic() - begun) / COUNTING_SHARE)

    async def unrunnable(self, link: Link) -> None:
        """Types that nobody alive has code for: their jobs wait, and somebody should know."""
        self._fleet.on_unrunnable(await link.run("read_unrunnable", most=LARGEST_COUNT))


async def promote(link: Link) -> float | None:
    """What every dispatcher does for itself, in case that none does."""
    ((moved, _, _),) = await link.run("promote", most=LARGEST_SWEEP)
    return 0.0 if moved >= LARGEST_SWEEP else None


#: The longest that the cron is left alone; it says itself when it has something to do.
CRON_SECONDS = 10.0


def all_duties(fleet: Fleetwide, cron: Cron, lease: float, history_keep: float) -> list[Duty]:
    """In the order in which a new leader does them."""
    reaper = Reaper(fleet, lease)
    housekeeping = Housekeeping(history_keep)
    gauges = Gauges(fleet)
    return [
        Duty("cron", CRON_SECONDS, cron.step),
        Duty("reap", min(5.0, lease / 4), reaper.step),
        Duty("partitions", 3600.0, housekeeping.partitions),
        Duty("promote", 10.0, promote),
        Duty("gauges", 120.0, gauges.step),
        Duty("unrunnable", 15.0, gauges.unrunnable),
        Duty("sweep", 60.0, housekeeping.sweep),
    ]
