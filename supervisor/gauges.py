"""Gauges that are made when somebody scrapes: the fleet's, which only a leader has, and the slots'.

Nothing here asks the database. What the leader has counted last stands here until it counts again,
and vanishes when it stops leading: two hosts that both show the backlog would show it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from time import monotonic
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobctl.store.states import State
from jobctl.supervisor.slot import Stage

OTHER = "other"
MOST_QUEUES = 200  # queues are named by whoever enqueues
MOST_LIMITS = 100  # and rules by operators
#: In the order of the columns of `limit_gauges.sql`.
_LIMIT_GAUGES = (
    ("places", "How many jobs of one key of the limit may run at once."),
    ("held", "Places that are held, over all keys of the limit."),
    ("waiting_jobs", "Jobs that wait to be let in, over all keys of the limit."),
    ("age_seconds", "How long the job has waited that is the next of its key; the longest."),
    ("restrained_keys", "Keys that the brake, or a RetryAfter of one of their jobs, holds back."),
)

OPEN_STATES = tuple(state for state in State if not state.is_final)
STAGES = tuple(stage for stage in Stage if stage is not Stage.GONE)
#: The worst lag of the loop is remembered for one to two of these.
LAG_SECONDS = 60.0


class WorstLag:
    """The largest of what was noted in this window and the one before."""

    def __init__(self) -> None:
        self._since = monotonic()
        self._now = self._before = 0.0

    def note(self, seconds: float) -> None:
        """The loop did something so much later than it was due."""
        self._turn()
        self._now = max(self._now, seconds)

    def worst(self) -> float:
        """Lately, in seconds."""
        self._turn()
        return max(self._now, self._before)

    def _turn(self) -> None:
        passed = monotonic() - self._since
        if passed >= LAG_SECONDS:
            self._before = self._now if passed < 2 * LAG_SECONDS else 0.0
            self._now = 0.0
            self._since = monotonic()


class Fleetwide(Collector):
    """What the leader has counted last."""

    def __init__(self) -> None:
        self.leads_since: float | None = None
        self.duties: dict[str, float] = {}  # when each succeeded last
        self.forget()

    def forget(self) -> None:
        """It leads no more."""
        self.rows: list[tuple[str, str, int, float | None]] = []
        self.paused: frozenset[str] = frozenset()
        self.tables: list[tuple[str, int, int]] = []
        self.oldest_transaction: float | None = None
        self.unrunnable: int | None = None
        self.stuck: int | None = None
        self.cron_lags: dict[str, float] = {}
        self.limits: list[tuple[Any, ...]] = []

    def collect(self) -> Iterable[Metric]:
        """For the registry."""
        yield from self._queues()
        yield _lone(
            "jobctl_oldest_transaction_age_seconds",
            "How long the oldest open transaction of the database has been open.",
            self.oldest_transaction,
        )
        yield _lone(
            "jobctl_unrunnable_jobs",
            "Queued jobs that no live host has the code for.",
            self.unrunnable,
        )
        yield _lone("jobctl_stuck_jobs", "Running jobs that nobody looks after.", self.stuck)
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
        yield from self._tables()
        yield from self._limits()

    def _queues(self) -> Iterable[Metric]:
        jobs = GaugeMetricFamily(
            "jobctl_jobs", "Open jobs, counted up to a bound.", labels=("queue", "state")
        )
        ages = GaugeMetricFamily(
            "jobctl_queue_age_seconds", "How long the oldest due job has waited.", labels=("queue",)
        )
        paused = GaugeMetricFamily(
            "jobctl_queue_paused", "1 while nothing is claimed from the queue.", labels=("queue",)
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
            paused.add_metric((queue,), float(queue in self.paused))
        yield jobs
        yield ages
        yield paused

    def _tables(self) -> Iterable[Metric]:
        size = GaugeMetricFamily(
            "jobctl_table_size_bytes", "A table of jobctl's with its indexes.", labels=("table",)
        )
        remains = GaugeMetricFamily(
            "jobctl_table_dead_rows", "Rows that vacuum has not removed yet.", labels=("table",)
        )
        for table, octets, dead_rows in self.tables:
            size.add_metric((table,), octets)
            remains.add_metric((table,), dead_rows)
        yield size
        yield remains

    def _limits(self) -> Iterable[Metric]:
        """By rule: keys are tenants, and there may be many of them."""
        families = [
            GaugeMetricFamily(f"jobctl_limit_{name}", help, labels=("limit",))
            for name, help in _LIMIT_GAUGES
        ]
        for rule, *values in self.limits[:MOST_LIMITS]:
            for family, value in zip(families, values, strict=True):
                if value is not None:
                    family.add_metric((rule,), value)
        yield from families


class Slots(Collector):
    """How many slots are in which stage, asked for when somebody wants to know."""

    def __init__(self) -> None:
        self.pools: set[str] = set()
        self._ask: Callable[[], Iterable[tuple[str, Stage]]] = tuple

    def watch(self, ask: Callable[[], Iterable[tuple[str, Stage]]]) -> None:
        """`ask` is called at each scrape for the pool and the stage of every slot."""
        self._ask = ask

    def collect(self) -> Iterable[Metric]:
        """For the registry."""
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


def _lone(name: str, help: str, value: float | None) -> Metric:
    """A gauge without labels; without a sample where nobody knows."""
    family = GaugeMetricFamily(name, help, labels=())
    if value is not None:
        family.add_metric((), value)
    return family
