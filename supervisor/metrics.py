"""What a supervisor tells Prometheus: the names of the contract, and what counts them.

Labels are bounded: job types are those that the app has registered, queues the first so many that
were seen, and only so many types are counted in another queue than their own; whatever else comes
is "other". Everything known exists at zero from the start, or the first failure would be invisible
to `increase()`. A scrape reads memory and never the database, and lets the loop go round between
two pieces of its text. Numbers of the whole fleet come from the leader: gauges vanish when it stops
leading, what it counts (enqueues, cron firings) stays where it was counted.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Info, ProcessCollector
from prometheus_client.core import Metric

from jobctl.store.job_type import JobType
from jobctl.supervisor.gauges import MOST_QUEUES, OTHER, Fleetwide, Slots, WorstLag
from jobctl.supervisor.http import Answer
from jobctl.supervisor.job_series import LONG, SHORT, EarlySeries, JobFamilies, JobSeries
from jobctl.supervisor.listener import Reason
from jobctl.supervisor.series import Counter, Fact, Family, Histogram
from jobctl.supervisor.slot import Stage
from jobctl.workerproc.said import EFFECT_RESULTS

MOST_TYPES = 1000  # the app's own, but an app can be written by a generator
MOST_PAIRS = 1000  # of a type and a queue that is not its own
MOST_CRONS = 500  # crons are named also by operators

RENEWALS = ("renewed", "failed", "refused")
FIRES = ("fired", "skipped", "missed")


class Metrics:
    """One supervisor's metrics, in a registry of their own. Written from the loop's thread only."""

    def __init__(self, version: str) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        self._families: list[Family[Counter] | Family[Histogram] | Family[Fact]] = []
        self._of_jobs = JobFamilies()
        self._cancel_latency = self._histograms(
            "jobctl_cancel_latency_seconds",
            "From asked to cancel a job that ran, or had run, until it was cancelled.", (), LONG,
        ).at()  # fmt: skip
        self.statements = self._histograms(
            "jobctl_sql_seconds", "How long statements took.", ("statement",), SHORT
        )
        self._types: Family[Fact] = Family(
            "jobctl_job_type_info", "Job types of the app, and whom their dead letters belong to.",
            ("job_type", "owner"), Fact,
        )  # fmt: skip
        self._families.append(self._types)
        self._slot_exits = self._counters(
            "jobctl_slot_exits", "Slots that are no more.", ("pool", "reason")
        )
        self._renewals = self._counters("jobctl_lease_renewals", "Tries to renew.", ("result",))
        self._claims_lost = self._counters(
            "jobctl_claims_lost", "Attempts that ended when their claim was no longer ours.", ()
        ).at()
        self._places_mended = self._counters(
            "jobctl_limit_places_mended", "Places of limits that were held by nobody.", ()
        ).at()
        for result in RENEWALS:
            self._renewals.at(result)
        self._effects = self._counters(
            "jobctl_effects", "Effects that attempts were about to have, by what came of them.",
            ("result",),
        )  # fmt: skip
        for result in EFFECT_RESULTS:
            self._effects.at(result)
        self._fires = self._counters(
            "jobctl_cron_fires", "Planned times of crons, by what came of them.", ("name", "result")
        )
        self._duty_errors = self._counters(
            "jobctl_leader_duty_errors", "Duties of the leader that failed.", ("duty",)
        )
        self._crons: set[str] = set()
        self._leader = self._gauge("jobctl_leader", "1 on the supervisor that leads.")
        self._database_up = self._gauge("jobctl_database_up", "1 while PostgreSQL answers.")
        self._draining = self._gauge("jobctl_draining", "1 while nothing more is claimed.")
        self._degraded = self._gauge(
            "jobctl_slots_degraded", "1 while slots die before they have done anything."
        )
        self._lag = WorstLag()
        self._gauge("jobctl_loop_lag_seconds", "Worst delay of the loop lately.").set_function(
            self._lag.worst
        )
        Info(
            "jobctl_build", "What runs here.", registry=self.registry
        ).info({"version": version, "python": platform.python_version()})  # fmt: skip
        self._fleetwide = Fleetwide()
        self.registry.register(self._fleetwide)
        self._slots = Slots()
        self.registry.register(self._slots)
        ProcessCollector(registry=self.registry)
        self._own_queue: dict[str, str] = {}  # of each type that has a label
        self._app_known = False
        self._early: dict[tuple[str, str], list[Callable[[JobSeries], None]]] = {}
        self._queues: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()  # of types in other queues than their own
        self._jobs: dict[tuple[str, str], JobSeries] = {}

    # Jobs

    def know(self, types: Iterable[JobType]) -> None:
        """These types have labels of their own from now on, and start at zero."""
        types = list(types)
        self._app_known = True
        self._types.clear()
        for each in types:
            if len(self._own_queue) < MOST_TYPES or each.name in self._own_queue:
                self._own_queue[each.name] = each.queue
                self._types.at(each.name, each.owner or "")
        # What was "other" until now is looked up anew.
        self._jobs.clear()
        for each in types:
            self.of(each.queue, each.name)

    def of(self, queue: str, job_type: str) -> JobSeries:
        """Where jobs of this type in this queue are counted."""
        found = self._jobs.get((queue, job_type))
        if found is None:
            if not self._app_known:
                return EarlySeries(self._early.setdefault((queue, job_type), []))
            if job_type not in self._own_queue:
                # Not remembered under its own name: whoever enqueues can invent any number.
                return self._jobs.get((queue, OTHER)) or self._remember(queue, OTHER)
            found = self._remember(queue, job_type)
        return found

    def _remember(self, queue: str, job_type: str) -> JobSeries:
        known = queue in self._queues
        foreign = job_type != OTHER and queue != self._own_queue[job_type]
        if (not known and len(self._queues) >= MOST_QUEUES) or (
            foreign and (queue, job_type) not in self._pairs and len(self._pairs) >= MOST_PAIRS
        ):
            queue = OTHER
            if (queue, job_type) in self._jobs:
                return self._jobs[queue, job_type]
        elif foreign:
            self._pairs.add((queue, job_type))
        self._queues.add(queue)
        series = self._jobs[queue, job_type] = JobSeries(self._of_jobs, queue, job_type)
        return series

    def cancelled(self, after: float) -> None:
        """A job that ran was cancelled, so many seconds after somebody asked for it."""
        self._cancel_latency.observe(after)

    def claim_lost(self) -> None:
        """An attempt ended, and its claim was no longer ours."""
        self._claims_lost.add()

    def effects(self, result: str, count: int) -> None:
        """A word of `EFFECT_RESULTS`, so many times."""
        self._effects.at(result).add(count)

    # Slots

    def watch_slots(self, slots: Callable[[], Iterable[tuple[str, Stage]]]) -> None:
        """`slots` is asked at each scrape for the pool and the stage of every slot."""
        self._slots.watch(slots)

    def know_pools(self, pools: Iterable[str]) -> None:
        """These pools exist from now on, with every count at zero."""
        for pool in pools:
            self._slots.pools.add(pool)
            for reason in Reason:
                self._slot_exits.at(pool, reason)

    def slot_gone(self, pool: str, reason: Reason) -> None:
        """A slot's process is no more."""
        self._slot_exits.at(pool, reason).add()

    # The supervisor itself

    def statement(self, label: str, seconds: float) -> None:
        """A statement was answered; `Link`'s observer."""
        self.statements.at(label).observe(seconds)

    def renewed(self, result: str) -> None:
        """The lease was renewed, or not; a word of `RENEWALS`."""
        self._renewals.at(result).add()

    def database(self, up: bool) -> None:
        """Whether PostgreSQL answers."""
        self._database_up.set(up)

    def draining(self, draining: bool) -> None:
        """Whether nothing more is claimed."""
        self._draining.set(draining)

    def degraded(self, degraded: bool) -> None:
        """Whether slots die before they have done anything."""
        self._degraded.set(degraded)

    def lagged(self, seconds: float) -> None:
        """The loop did something so much later than it was due."""
        self._lag.note(seconds)

    # The fleet, while this supervisor leads

    def leading(self, leads: bool) -> None:
        """Whether this supervisor leads; what only a leader knows is forgotten when it does not."""
        self._leader.set(leads)
        self._fleetwide.leads_since = monotonic() if leads else None
        if not leads:
            self._fleetwide.forget()

    def backlog(self, rows: Iterable[tuple[str, str, int, float | None]]) -> None:
        """Rows of `gauges.sql`: queue, state, how many, age of the oldest that is due."""
        self._fleetwide.rows = list(rows)

    def paused(self, queues: Iterable[str]) -> None:
        """The queues from which nothing is claimed."""
        self._fleetwide.paused = frozenset(queues)

    def enqueued(self, rows: Iterable[tuple[str, str, int, bool]]) -> None:
        """So many more jobs by queue and type; each commit is told once, to one leader. A type that
        another host's app has registered has a label here as well."""
        for queue, job_type, jobs, registered in rows:
            if registered and len(self._own_queue) < MOST_TYPES:
                self._own_queue.setdefault(job_type, queue)
            self.of(queue, job_type).enqueued(jobs)

    def tables(self, rows: Iterable[tuple[str, int, int]]) -> None:
        """Name, bytes and dead rows of each table."""
        self._fleetwide.tables = list(rows)

    def limits(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows of `limit_gauges.sql`."""
        self._fleetwide.limits = list(rows)

    def places_mended(self, places: int) -> None:
        """Places of limits that nobody held were given back."""
        self._places_mended.add(places)

    def stuck(self, jobs: int) -> None:
        """So many running jobs that nobody looks after."""
        self._fleetwide.stuck = jobs

    def know_duties(self, duties: Iterable[str]) -> None:
        """What a leader does; errors start at zero."""
        self._fleetwide.duties = dict.fromkeys(duties, 0.0)
        for duty in self._fleetwide.duties:
            self._duty_errors.at(duty)

    def duty_done(self, duty: str) -> None:
        """It succeeded, just now."""
        self._fleetwide.duties[duty] = monotonic()

    def duty_failed(self, duty: str) -> None:
        """It did not."""
        self._duty_errors.at(duty).add()

    def crons(self, late: Mapping[str, float]) -> None:
        """Every cron that is on, and how many seconds it is overdue; others are forgotten."""
        lags = self._fleetwide.cron_lags
        self._fleetwide.cron_lags = {
            name: late[name] or lags.get(name, 0.0) for name in late if self._cron(name) == name
        }

    def cron_fired(self, name: str, result: str, times: int, lag: float | None) -> None:
        """A word of `FIRES`; `lag` is from the planned time until it was dealt with."""
        label = self._cron(name)
        self._fires.at(label, result).add(times)
        if lag is not None and label == name:
            self._fleetwide.cron_lags[name] = lag

    def _cron(self, name: str) -> str:
        """The label of this cron; its counts exist from now on."""
        if name not in self._crons:
            if len(self._crons) >= MOST_CRONS:
                return OTHER
            self._crons.add(name)
            for result in FIRES:
                self._fires.at(name, result)
        return name

    def unrunnable(self, jobs: int) -> None:
        """So many queued jobs wait for code that no live host has."""
        self._fleetwide.unrunnable = jobs

    def oldest_transaction(self, seconds: float) -> None:
        """The age of the oldest open transaction of this database."""
        self._fleetwide.oldest_transaction = seconds

    # What is scraped

    def expose(self) -> Iterator[bytes]:
        """The text that Prometheus reads, in pieces that take a millisecond or so."""
        for family in (*self._of_jobs, *self._families):
            yield from family.pieces()
        for metric in self.registry.collect():
            yield prometheus_client.generate_latest(_One(metric))
        if self._app_known:
            self._count_what_was_early()

    def _count_what_was_early(self) -> None:
        early, self._early = self._early, {}
        for (queue, job_type), counts in early.items():
            for count in counts:
                count(self.of(queue, job_type))

    async def page(self) -> Answer:
        """/metrics. Between two pieces the loop does what is more urgent."""
        pieces = []
        for piece in self.expose():
            pieces.append(piece)
            await asyncio.sleep(0)
        return Answer(200, b"".join(pieces), "text/plain; version=0.0.4; charset=utf-8")

    def _counters(self, name: str, help: str, labels: tuple[str, ...]) -> Family[Counter]:
        family = Family(name, help, labels, Counter)
        self._families.append(family)
        return family

    def _histograms(
        self, name: str, help: str, labels: tuple[str, ...], edges: tuple[float, ...]
    ) -> Family[Histogram]:
        family = Family(name, help, labels, lambda: Histogram(edges))
        self._families.append(family)
        return family

    def _gauge(self, name: str, help: str) -> Gauge:
        return Gauge(name, help, registry=self.registry)


class _One(CollectorRegistry):
    """A registry of one metric that has been collected already."""

    def __init__(self, family: Metric) -> None:
        super().__init__(auto_describe=False)
        self._family = family

    def collect(self) -> Iterable[Metric]:
        yield self._family
