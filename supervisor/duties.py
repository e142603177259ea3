"""What the leader does: each a step that tests can call, safe to be done by two at once."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

from psycopg import errors

from jobctl.store.link import Link, Row
from jobctl.supervisor.census import Census, Registrar
from jobctl.supervisor.cron import Cron, Watcher
from jobctl.supervisor.leader import Duty
from jobctl.supervisor.leases import boottime
from jobctl.supervisor.limits import Limiter, Limits
from jobctl.supervisor.next_steps import NextSteps
from jobctl.supervisor.reclaim import reclaim
from jobctl.supervisor.settle import Settlement

#: A lease is over for the reaper this much after it is over for the database.
GRACE_SECONDS = 5.0
#: Added to a lease for the amnesty after the database itself was away.
AMNESTY_SECONDS = 15.0
#: More than this is no drift: the database's clock was set, or another server answers.
CLOCK_STEP_SECONDS = 5.0
#: The most rows that one sweep removes.
LARGEST_SWEEP = 5_000
#: No count in the metrics goes beyond this.
LARGEST_COUNT = 100_000
MOST_STUCK = 1_000
#: Counting takes at most this part of the time, however much there is to be counted.
COUNTING_SHARE = 1 / 20
GAUGES_SECONDS = 10.0


class Fleetwide(Watcher, Registrar, Limiter, Protocol):
    """What duties need of the supervisor that leads."""

    def settle(self, settlement: Settlement) -> None:
        """Through the one door."""

    def pending(self, session: int, token: int) -> bool:
        """Whether this claim's ending waits to be written here."""

    def database_was_away_at(self) -> float:
        """The last moment (boottime) at which a connection of this host was not there, or at which
        this host was not."""

    def on_sessions_expired(self, hosts: list[str]) -> None:
        """Leases that are over."""

    def on_clock_set(self, seconds: float) -> None:
        """The database's clock was set, by so much."""

    def on_gauges(self, rows: list[Row]) -> None:
        """Rows of `gauges.sql`."""

    def on_unrunnable(self, rows: list[Row]) -> None:
        """Rows of `read_unrunnable.sql`."""

    def on_oldest_transaction(self, seconds: float) -> None:
        """Of this database."""

    def on_paused(self, queues: list[str]) -> None:
        """From which nothing is claimed."""

    def on_stuck(self, jobs: int) -> None:
        """So many running jobs that nobody looks after, up to a bound."""

    def on_tables(self, rows: list[Row]) -> None:
        """Rows of `read_tables.sql`."""


class Reaper:
    """Ends the claims of hosts whose lease is over.

    After the database itself was away nobody can have renewed, so nobody's lease is judged until
    everybody has had a lease's time to come back (the amnesty). It is counted from the last moment
    at which this host did not have the database: because a connection was lost, because the server
    was not running, because this supervisor had not begun (what was before, it cannot know: a
    promoted standby has been running for long), or because the database's clock was set.
    """

    def __init__(self, fleet: Fleetwide, lease: float, clock: Callable[[], float] = boottime):
        self._fleet = fleet
        self._patience = lease + AMNESTY_SECONDS
        self._clock = clock
        self._generation = -1
        self._away_at = 0.0  # the server, or its right time
        self._looked_at = 0.0
        self._told = 0.0  # what the database's clock said then

    async def step(self, link: Link) -> None:
        """Expires leases, unless there is an amnesty, and reclaims what is lost."""
        await self._look_at_the_clock(link)
        away_at = max(self._away_at, self._fleet.database_was_away_at())
        if self._clock() < away_at + self._patience:
            return
        expired = await link.run("expire_sessions", grace=GRACE_SECONDS)
        if expired:
            self._fleet.on_sessions_expired([row[1] for row in expired])
        await reclaim(link, self._fleet.settle, self._fleet.pending)

    async def _look_at_the_clock(self, link: Link) -> None:
        """A clock that was set makes leases end too early, or hardly ever: both are mended."""
        ((told, age),) = await link.run("server_clock")
        now = self._clock()
        if link.generation != self._generation:
            self._generation = link.generation
            self._away_at = max(self._away_at, now - age)
        else:
            passed = now - self._looked_at
            step = told - self._told - passed
            if abs(step) > CLOCK_STEP_SECONDS:
                self._away_at = now
                self._fleet.on_clock_set(step)
            if step > CLOCK_STEP_SECONDS:
                await link.run("move_deadlines", before=self._told + passed, seconds=step)
        await link.run("mend_leases", ahead=CLOCK_STEP_SECONDS)
        self._looked_at, self._told = now, told


class Housekeeping:
    """History's partitions, and rows whose time is over."""

    def __init__(self, keep: float, effect_keep: float) -> None:
        self._keep = keep
        self._effect_keep = effect_keep

    async def partitions(self, link: Link) -> None:
        """Makes those ahead and drops those behind, without waiting for whoever reads them."""
        await link.execute("make_history_partitions", "SELECT make_history_partitions()")
        for (name,) in await link.run("old_history", keep=self._keep):
            # Dropping takes a lock on all of history: a reader makes us come back later rather
            # than make every settle wait behind us.
            await link.execute("set", "SELECT set_config('lock_timeout', '200ms', false)")
            try:
                await link.run("drop_history", name=name)
            except errors.LockNotAvailable:
                return
            finally:
                await link.execute("set", "SELECT set_config('lock_timeout', '2s', false)")

    async def sweep(self, link: Link) -> None:
        """A bounded number of rows a step."""
        await link.run("sweep_keys", most=LARGEST_SWEEP)
        await link.run("sweep_edges", keep=self._keep, most=LARGEST_SWEEP)
        await link.run("sweep_attempts", keep=self._keep, most=LARGEST_SWEEP)
        await link.run("sweep_claims", most=LARGEST_SWEEP)
        await link.run("sweep_sessions")
        await link.run("sweep_lanes")
        await link.run("sweep_cron_fires", keep=self._keep, most=LARGEST_SWEEP)
        await link.run("sweep_effects", keep=self._effect_keep, most=LARGEST_SWEEP)


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
        self._fleet.on_paused([name for (name,) in await link.run("read_paused")])
        self._fleet.on_stuck(len(await link.run("read_stuck", most=MOST_STUCK)))
        return max(GAUGES_SECONDS, (monotonic() - begun) / COUNTING_SHARE)

    async def unrunnable(self, link: Link) -> None:
        """Types that nobody alive has code for: their jobs wait, and somebody should know."""
        self._fleet.on_unrunnable(await link.run("read_unrunnable", most=LARGEST_COUNT))

    async def tables(self, link: Link) -> None:
        """Their sizes, and what vacuum has not removed from them."""
        self._fleet.on_tables(await link.run("read_tables"))


async def promote(link: Link) -> float | None:
    """What every dispatcher does for itself, in case that none does."""
    ((moved, _, _),) = await link.run("promote", most=LARGEST_SWEEP, within=None)
    return 0.0 if moved >= LARGEST_SWEEP else None


#: The longest that the cron is left alone; it says itself when it has something to do.
CRON_SECONDS = 10.0


def all_duties(
    fleet: Fleetwide, cron: Cron, lease: float, history_keep: float, effect_keep: float
) -> list[Duty]:
    """In the order in which a new leader does them."""
    reaper = Reaper(fleet, lease)
    housekeeping = Housekeeping(history_keep, effect_keep)
    gauges = Gauges(fleet)
    return [
        Duty("cron", CRON_SECONDS, cron.step),
        Duty("reap", min(5.0, lease / 4), reaper.step),
        # Before history is dropped: what has succeeded is read there.
        Duty("next_steps", 60.0, NextSteps().step),
        Duty("partitions", 3600.0, housekeeping.partitions),
        Duty("promote", 10.0, promote),
        Duty("limits", 10.0, Limits(fleet).step),
        Duty("gauges", 120.0, gauges.step),
        Duty("census", 30.0, Census(fleet).step),
        Duty("unrunnable", 15.0, gauges.unrunnable),
        Duty("tables", 60.0, gauges.tables),
        Duty("sweep", 60.0, housekeeping.sweep),
    ]
