"""What a supervisor tells Prometheus: the names of the contract, and what counts them.

The supervisor sees everything but enqueues, which are the producers' own transactions; a
`jobctl_jobs_enqueued_total` from here would be a guess, so there is none. Labels are bounded: job
types are those that the app has registered, queues the first so many that were seen; whatever else
comes is "other". Everything known exists at zero from the start, or the first failure would be
invisible to `increase()`. A scrape reads memory and never the database; numbers of the whole fleet
come from the leader, and vanish when it stops leading.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from time import monotonic

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Info, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobctl.store.job_type import JobType
from jobctl.store.states import Outcome, State
from jobctl.supervisor.http import Answer
from jobctl.supervisor.listener import Reason
from jobctl.supervisor.series import Counter, Family, Histogram
from jobctl.supervisor.slot import Stage

OTHER = "other"
MOST_QUEUES = 200  # queues are named by whoever enqueues
MOST_CRONS = 500  # and crons also by operators

#: Edges that hold the usual promises (a second, ten, a minute, an hour).
LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
WHOLE_LIFE = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
ATTEMPTS = (1, 2, 3, 4, 5, 7, 10, 15, 25)

OPEN_STATES = tuple(state for state in State if not state.is_final)
FINISHED_STATES = (State.SUCCEEDED, State.DEAD, State.CANCELLED)
STAGES = tuple(stage for stage in Stage if stage is not Stage.GONE)
#: Why a job that was running is given to somebody again, through no fault of its handler's code.
REDELIVERIES = ("lease_expired", "crash", "interrupted")
RENEWALS = ("renewed", "failed", "refused")
KILLS = ("soft", "hard")
FIRES = ("fired", "skipped", "missed")
#: The worst lag of the loop is remembered for one to two of these.
LAG_SECONDS = 60.0


class JobSeries:
    """What is counted for jobs of one type in one queue; get it from `Metrics.of`."""

    __slots__ = (
        "_attempts",
        "_attempts_needed",
        "_duration",
        "_finished",
        "_kills",
        "_redelivered",
        "_started",
        "_took",
        "_waited",
    )

    def __init__(self, metrics: Metrics, queue: str, job_type: str) -> None:
        self._attempts = {o.value: metrics.attempts.at(queue, job_type, o) for o in Outcome}
        self._finished = {s.value: metrics.finished.at(queue, job_type, s) for s in FINISHED_STATES}
        self._redelivered = {r: metrics.redeliveries.at(queue, r) for r in REDELIVERIES}
        self._kills = {kind: metrics.deadline_kills.at(job_type, kind) for kind in KILLS}
        self._waited = metrics.wait.at(queue)
        self._started = metrics.claim_to_start.at(queue)
        self._took = metrics.attempt_duration.at(queue, job_type)
        self._attempts_needed = metrics.attempts_per_job.at(job_type)
        self._duration = metrics.job_duration.at(job_type)

    def claimed(self, waited: float) -> None:
        """A job was claimed, so many seconds after it was due."""
        self._waited.observe(waited)

    def started(self, after: float) -> None:
        """Its handler was started, so many seconds after the claim."""
        self._started.observe(after)

    def ended(self, outcome: str, seconds: float | None) -> None:
        """An attempt ended (a word of `Outcome`) after so many seconds; None if nobody knows."""
        self._attempts[outcome].add()
        if seconds is not None:
            self._took.observe(seconds)

    def finished(self, state: str, attempts: int, age: float) -> None:
        """The job is succeeded, dead or cancelled, after so many attempts; `age` is seconds since
        it was enqueued, or due."""
        self._finished[state].add()
        self._attempts_needed.observe(attempts)
        self._duration.observe(age)

    def redelivered(self, reason: str) -> None:
        """It will run again although its handler did not fail; a word of `REDELIVERIES`."""
        self._redelivered[reason].add()

    def killed(self, kind: str) -> None:
        """Its deadline ended it; a word of `KILLS`."""
        self._kills[kind].add()


class Metrics:
    """One supervisor's metrics, in a registry of their own. Written from the loop's thread only."""

    def __init__(self, version: str) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        of_job = ("queue", "job_type")
        self.finished = self._counters(
            "jobctl_jobs_finished", "Jobs that ended for good.", (*of_job, "state")
        )
        self.attempts = self._counters(
            "jobctl_attempts", "Attempts that ended.", (*of_job, "outcome")
        )
        self.redeliveries = self._counters(
            "jobctl_redeliveries", "Jobs given out again because a host, a slot or a drain "
            "took their attempt.", ("queue", "reason"),
        )  # fmt: skip
        self.deadline_kills = self._counters(
            "jobctl_deadline_kills", "Attempts ended by their deadline.", ("job_type", "kind")
        )
        self.attempts_per_job = self._histograms(
            "jobctl_attempts_per_finished_job", "Attempts that a finished job took.",
            ("job_type",), ATTEMPTS,
        )  # fmt: skip
        self.attempt_duration = self._histograms(
            "jobctl_attempt_duration_seconds", "How long attempts ran.", of_job, LONG
        )
        self.job_duration = self._histograms(
            "jobctl_job_duration_seconds", "From enqueued, or due, until finished.",
            ("job_type",), WHOLE_LIFE,
        )  # fmt: skip
        self.wait = self._histograms(
            "jobctl_wait_seconds", "From due until claimed.", ("queue",), LONG
        )
        self.claim_to_start = self._histograms(
            "jobctl_claim_to_start_seconds", "From claimed until the handler started.",
            ("queue",), SHORT,
        )  # fmt: skip
        self.statements = self._histograms(
            "jobctl_sql_seconds", "How long statements took.", ("statement",), SHORT
        )
        self._slot_exits = self._counters(
            "jobctl_slot_exits", "Slots that are no more.", ("pool", "reason")
        )
        self._renewals = self._counters("jobctl_lease_renewals", "Tries to renew.", ("result",))
        self._claims_lost = self._counters(
            "jobctl_claims_lost", "Attempts that ended when their claim was no longer ours.", ()
        ).at()
        for result in RENEWALS:
            self._renewals.at(result)
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
        self._lag = _WorstLag()
        self._gauge("jobctl_loop_lag_seconds", "Worst delay of the loop lately.").set_function(
            self._lag.worst
        )
        Info(
            "jobctl_build", "What runs here.", registry=self.registry
        ).info({"version": version, "python": platform.python_version()})  # fmt: skip
        self._fleetwide = _Fleetwide()
        self.registry.register(self._fleetwide)
        self._slots = _Slots()
        self.registry.register(self._slots)
        ProcessCollector(registry=self.registry)
        self._known: frozenset[str] = frozenset()
        self._queues: set[str] = set()
        self._jobs: dict[tuple[str, str], JobSeries] = {}

    # Jobs

    def know(self, types: Iterable[JobType]) -> None:
        """These types have labels of their own from now on, and start at zero."""
        types = list(types)
        self._known |= {each.name for each in types}
        # What was "other" until now is looked up anew.
        self._jobs.clear()
        for each in types:
            self.of(each.queue, each.name)

    def of(self, queue: str, job_type: str) -> JobSeries:
        """Where jobs of this type in this queue are counted."""
        found = self._jobs.get((queue, job_type))
        if found is None:
            if job_type not in self._known:
                # Not remembered under its own name: whoever enqueues can invent any number.
                return self._jobs.get((queue, OTHER)) or self._remember(queue, OTHER)
            found = self._remember(queue, job_type)
        return found

    def _remember(self, queue: str, job_type: str) -> JobSeries:
        if len(self._queues) >= MOST_QUEUES and queue not in self._queues:
            queue = OTHER
            if (queue, job_type) in self._jobs:
                return self._jobs[queue, job_type]
        self._queues.add(queue)
        series = self._jobs[queue, job_type] = JobSeries(self, queue, job_type)
        return series

    def claim_lost(self) -> None:
        """An attempt ended, and its claim was no longer ours."""
        self._claims_lost.add()

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
        """The text that Prometheus reads, in pieces of one metric."""
        for family in self.registry.collect():
            yield prometheus_client.generate_latest(_One(family))

    async def page(self) -> Answer:
        """/metrics. Between two metrics the loop does what is more urgent."""
        pieces = []
        for piece in self.expose():
            pieces.append(piece)
            await asyncio.sleep(0)
        return Answer(200, b"".join(pieces), "text/plain; version=0.0.4; charset=utf-8")

    def _counters(self, name: str, help: str, labels: tuple[str, ...]) -> Family[Counter]:
        family = Family(name, help, labels, Counter)
        self.registry.register(family)
        return family

    def _histograms(
        self, name: str, help: str, labels: tuple[str, ...], edges: tuple[float, ...]
    ) -> Family[Histogram]:
        family = Family(name, help, labels, lambda: Histogram(edges))
        self.registry.register(family)
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


class _WorstLag:
    """The largest of what was noted in this window and the one before."""

    def __init__(self) -> None:
        self._since = monotonic()
        self._now = self._before = 0.0

    def note(self, seconds: float) -> None:
        self._turn()
        self._now = max(self._now, seconds)

    def worst(self) -> float:
        self._turn()
        return max(self._now, self._before)

    def _turn(self) -> None:
        passed = monotonic() - self._since
        if passed >= LAG_SECONDS:
            self._before = self._now if passed < 2 * LAG_SECONDS else 0.0
            self._now = 0.0
            self._since = monotonic()


class _Fleetwide(Collector):
    """What the leader has counted last."""

    def __init__(self) -> None:
        self.leads_since: float | None = None
        self.duties: dict[str, float] = {}  # when each succeeded last
        self.forget()

    def forget(self) -> None:
        self.rows: list[tuple[str, str, int, float | None]] = []
        self.oldest_transaction: float | None = None
        self.unrunnable: int | None = None
        self.cron_lags: dict[str, float] = {}

    def collect(self) -> Iterable[Metric]:
        jobs = GaugeMetricFamily(
            "jobctl_jobs", "Open jobs, counted up to a bound.", labels=("queue", "state")
        )
        ages = GaugeMetricFamily(
            "jobctl_queue_age_seconds", "How long the oldest due job has waited.", labels=("queue",)
        )
        counts: dict[tuple[str, str], int] = {}
        oldest: dict[str, float] = {}
        for name, state, count, age in self.rows:
            queue = name if name in oldest or len(oldest) < MOST_QUEUES else OTHER
            counts[queue, state] = counts.get((queue, state), 0) + count
            oldest[queue] = max(oldest.get(queue, 0.0), age or 0.0)
        for queue, state in product(oldest, OPEN_STATES):
            jobs.add_metric((queue, state), counts.get((queue, state), 0))
        for queue, age in oldest.items():
            ages.add_metric((queue,), age)
        yield jobs
        yield ages
        transaction = GaugeMetricFamily(
            "jobctl_oldest_transaction_age_seconds",
            "How long the oldest open transaction of the database has been open.",
            labels=(),
        )
        if self.oldest_transaction is not None:
            transaction.add_metric((), self.oldest_transaction)
        yield transaction
        unrunnable = GaugeMetricFamily(
            "jobctl_unrunnable_jobs", "Queued jobs that no live host has the code for.", labels=()
        )
        if self.unrunnable is not None:
            unrunnable.add_metric((), self.unrunnable)
        yield unrunnable
        lags = GaugeMetricFamily(
            "jobctl_cron_lag_seconds",
            "How long after its planned time the cron fired last, or is overdue.",
            labels=("name",),
        )
        for name, lag in self.cron_lags.items():
            lags.add_metric((name,), lag)
        yield lags
        duties = GaugeMetricFamily(
            "jobctl_leader_duty_age_seconds",
            "Since the leader's duty succeeded last, or since it leads.",
            labels=("duty",),
        )
        if self.leads_since is not None:
            for duty, done_at in self.duties.items():
                duties.add_metric((duty,), monotonic() - max(done_at, self.leads_since))
        yield duties


class _Slots(Collector):
    """How many slots are in which stage, asked for when somebody wants to know."""

    def __init__(self) -> None:
        self.pools: set[str] = set()
        self._ask: Callable[[], Iterable[tuple[str, Stage]]] = tuple

    def watch(self, ask: Callable[[], Iterable[tuple[str, Stage]]]) -> None:
        self._ask = ask

    def collect(self) -> Iterable[Metric]:
        counts: dict[str, dict[Stage, int]] = {
            pool: dict.fromkeys(STAGES, 0) for pool in sorted(self.pools)
        }
        for pool, stage in self._ask():
            if pool in counts and stage in counts[pool]:
                counts[pool][stage] += 1
        slots = GaugeMetricFamily("jobctl_slots", "Slots by stage.", labels=("pool", "stage"))
        saturation = GaugeMetricFamily(
            "jobctl_saturation_ratio", "Share of the slots that run a job.", labels=("pool",)
        )
        for pool, stages in counts.items():
            for stage, count in stages.items():
                slots.add_metric((pool, stage.value), count)
            saturation.add_metric((pool,), stages[Stage.BUSY] / max(1, sum(stages.values())))
        yield slots
        yield saturation
