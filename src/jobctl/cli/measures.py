"""What `jobctl check` measures, and what is too much of it: one table.

The options, their help and the perfdata are made from it. A threshold of 0 never alerts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from jobctl.store import reading
from jobctl.store.reading import Connection, JobFilter
from jobctl.store.spoken import coarse
from jobctl.store.states import State

#: Dead jobs are counted up to this.
MOST_DEAD = 10_000


class Level(IntEnum):
    """The exit codes of a Nagios plugin."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class Measure:
    """One thing that is measured. `warning` and `critical` are the defaults, as they are typed."""

    name: str  # of the options: --NAME-warning, --NAME-critical
    label: str  # in the perfdata
    help: str
    warning: str
    critical: str
    seconds: bool = False  # else a number
    least: bool = False  # too few is bad, not too many


MEASURES = (
    Measure("age", "oldest_due", "The oldest due job has waited so long.", "1m", "10m", True),
    Measure("hosts", "hosts", "Fewer supervisors work.", "1", "1", least=True),
    Measure("stuck", "stuck", "Running jobs that nobody looks after.", "1", "10"),
    Measure("dead", "dead", "Jobs died lately (--dead-within).", "1", "100"),
    Measure("unrunnable", "unrunnable", "Waiting jobs that no host has code for.", "1", "0"),
    Measure("cron", "cron_late", "A cron is overdue for so long.", "2m", "30m", True),
    Measure("pause", "paused", "A queue has been paused for so long.", "12h", "0", True),
    Measure(
        "transaction", "oldest_transaction", "A transaction has been open for so long.",
        "1h", "0", True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """A measure's value now, and the sentence that says it."""

    measure: Measure
    value: float
    words: str
    warning: float
    critical: float

    @property
    def level(self) -> Level:
        """How bad it is."""
        if self._reached(self.critical):
            return Level.CRITICAL
        return Level.WARNING if self._reached(self.warning) else Level.OK

    @property
    def perfdata(self) -> str:
        """As Nagios reads it: 'label'=value[unit];warning;critical;minimum."""
        unit = "s" if self.measure.seconds else ""
        value = f"{self.value:.3f}".rstrip("0").rstrip(".") if self.measure.seconds else self.value
        limits = (self._range(self.warning), self._range(self.critical))
        return f"{self.measure.label}={value}{unit};{';'.join(limits)};0"

    def _reached(self, threshold: float) -> bool:
        if not threshold:
            return False
        return self.value < threshold if self.measure.least else self.value >= threshold

    def _range(self, threshold: float) -> str:
        if not threshold:
            return ""
        return f"{threshold:g}:" if self.measure.least else f"{threshold:g}"


@dataclass(frozen=True)
class Fleet:
    """What is said when all is well."""

    working: int
    busy: int
    slots: int


def take(
    connection: Connection,
    thresholds: dict[str, tuple[float, float]],
    *,
    queues: list[dict[str, Any]],
    only: tuple[str, ...],
    dead_within: float,
) -> tuple[list[Reading], Fleet]:
    """Measures. `queues` are the facts of `jobctl queues list`; `only` these of them are looked at.

    Raises what psycopg raises.
    """
    chosen = [queue for queue in queues if not only or queue["queue"] in only]
    hosts = [row for row in reading.hosts(connection) if row["state"] != "dead"]
    working = [row for row in hosts if row["state"] == "working"]
    found: dict[str, tuple[float, str]] = {}

    aged = [(one["age_seconds"] or 0.0, one["queue"]) for one in chosen if not one["paused_at"]]
    age, queue = max(aged, default=(0.0, ""))
    found["age"] = age, f"the oldest due job of {queue} has waited {coarse(age)}"
    left = {state: [row["host"] for row in hosts if row["state"] == state] for state in _ABSENT}
    others = "".join(f", {', '.join(names)} {state}" for state, names in left.items() if names)
    found["hosts"] = len(working), f"{_of(len(working), 'supervisor')} working{others}"
    stuck = [row for row in reading.stuck(connection) if not only or row["queue"] in only]
    found["stuck"] = len(stuck), f"{_of(len(stuck), 'running job')} looked after by nobody"
    found["dead"] = _dead(connection, only, dead_within)
    strangers = [row for row in reading.unrunnable(connection) if not only or row["queue"] in only]
    jobs = sum(row["jobs"] for row in strangers)
    types = ", ".join(sorted({str(row["type"]) for row in strangers}))
    found["unrunnable"] = jobs, f"{_of(jobs, 'job')} that no host has code for: {types}"
    late = [
        (row["overdue_seconds"] or 0.0, row["name"])
        for row in reading.crons(connection)
        if row["overdue_seconds"]
    ]
    overdue, name = max(late, default=(0.0, ""))
    found["cron"] = overdue, f"the cron {name} is {coarse(overdue)} late"
    now = reading.clock(connection)
    pauses = [
        ((now - one["paused_at"]).total_seconds(), one["queue"])
        for one in chosen
        if one["paused_at"]
    ]
    paused, queue = max(pauses, default=(0.0, ""))
    found["pause"] = paused, f"the queue {queue} is paused for {coarse(paused)}"
    oldest = reading.oldest_transaction(connection)
    found["transaction"] = oldest, f"a transaction is open for {coarse(oldest)}"

    readings = [Reading(each, *found[each.name], *thresholds[each.name]) for each in MEASURES]
    return readings, Fleet(
        len(working), sum(row["busy"] for row in working), sum(row["slots"] for row in working)
    )


_ABSENT = ("silent", "not ready", "draining", "drained")


def _dead(connection: Connection, only: tuple[str, ...], within: float) -> tuple[int, str]:
    since = reading.ago(connection, within)
    filters = [JobFilter(queue=one, state=State.DEAD, since=since) for one in only or (None,)]
    jobs = sum(len(reading.ids(connection, each, MOST_DEAD)) for each in filters)
    return jobs, f"{_of(jobs, 'job')} died within {coarse(within)}"


def _of(many: int, what: str) -> str:
    return f"{many} {what}" + ("" if many == 1 else "s")
