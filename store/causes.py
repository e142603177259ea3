"""The causes that keep a job from running, by name, and the words that they are told in."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from jobctl.store.reading import Row
from jobctl.store.spoken import coarse, iso
from jobctl.store.standing import MOST_AHEAD, Standing


class Cause(StrEnum):
    """The word for it; programs branch on it."""

    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    BLOCKED = "blocked"
    LIMIT = "limit"
    QUEUE_PAUSED = "queue_paused"
    NO_HOST = "no_host"
    QUEUE_UNSERVED = "queue_unserved"
    HOSTS_NOT_READY = "hosts_not_ready"
    TYPE_UNKNOWN = "type_unknown"
    VERSION_UNKNOWN = "version_unknown"
    HOSTS_DRAINING = "hosts_draining"
    SLOTS_BUSY = "slots_busy"
    WAITS_ITS_TURN = "waits_its_turn"
    NEXT = "next"
    RUNNING = "running"
    CANCEL_REQUESTED = "cancel_requested"
    HOST_SILENT = "host_silent"
    STUCK = "stuck"
    DEAD = "dead"
    FINISHED = "finished"
    MISPLACED = "misplaced"


#: The cause, why in one sentence, and what to do.
Answer = tuple[Cause, str, str]


def when(facts: Standing, moment: datetime) -> str:
    """How near, and when exactly."""
    seconds = (moment - facts.now).total_seconds()
    near = f"in {coarse(seconds)}" if seconds > 0 else f"{coarse(-seconds)} ago"
    return f"{near} ({iso(moment.replace(microsecond=0))})"


def error_of(job: Row) -> str:
    """Class and first line of its last error."""
    first = (job["last_error"] or "").strip().split("\n", 1)[0]
    return ": ".join(part for part in (job["failure_class"], first) if part) or "no error is known"


def many(jobs: int) -> str:
    """So many jobs, as far as anybody counts."""
    if jobs > MOST_AHEAD:
        return f"more than {MOST_AHEAD} jobs"
    return "1 job" if jobs == 1 else f"{jobs} jobs"


def have(many: int) -> str:
    """The verb for so many."""
    return "has" if many == 1 else "have"


def are(many: int) -> str:
    """The verb for so many."""
    return "is" if many == 1 else "are"


def names(hosts: list[Row]) -> str:
    """Of hosts, each once."""
    return ", ".join(sorted({row["host"] for row in hosts}))
