"""What the model of the store consists of, and what can be done to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.lanes import FRONT
from jobctl.supervisor.outcomes import (
    UNREGISTERED,
    Cancelled,
    Cause,
    Crashed,
    Failed,
    HandedBack,
    Interrupted,
    Snoozed,
    TimedOut,
    Unrunnable,
)
from tests.claiming import Connection

TYPES = ("t", "u")
SESSIONS = 2
#: No delay ends by itself while an example runs.
LATER = 3600.0

CAUSES: tuple[Cause, ...] = (
    Failed("E", "why", retry_after=LATER),
    Failed("E", "why", permanent=True),
    TimedOut("hard", "too long"),
    Crashed("killed"),
    Snoozed(LATER),
    Cancelled(),
    Interrupted("drain"),
    HandedBack(),
    Unrunnable(),
)
#: No backoff ends either, and a job can be dead after some attempts.
POLICY = replace(UNREGISTERED, min_backoff_seconds=LATER, max_attempts=4)
#: Where a job stands once it has gone to a place.
STANDS = {
    "retry": "retrying", "snooze": "scheduled", "dead": "dead", "cancelled": "cancelled",
    "front": "queued", "lane": "queued",
}  # fmt: skip

#: The tables that an example writes to.
TABLES = (
    "job", "ready", "scheduled", "claim", "blocked", "dead", "history", "attempt", "job_key",
    "session", "lane", "job_edge",
)  # fmt: skip

which = st.integers(0, 1_000)
a_type = st.sampled_from(TYPES)
a_key = st.runner().flatmap(lambda machine: st.sampled_from(machine.key_names))
a_cause = st.sampled_from(CAUSES)
a_success_or_cause = st.sampled_from((None, *CAUSES))
on_dead = st.sampled_from(("hold", "cancel"))
some_parents = st.lists(which, min_size=1, max_size=3)
several = st.lists(a_success_or_cause, min_size=1, max_size=6)
some_jobs = st.lists(
    st.tuples(a_type, a_key, st.sampled_from([0, 0, 3]), st.sampled_from([False, False, True])),
    min_size=1,
    max_size=5,
)


@dataclass
class Job:
    """What the model knows of a job. `turn`: its number in its lane, while it is queued."""

    type: str
    key: str | None
    priority: int
    state: str
    turn: int = 0
    lane: str = ""
    attempt: int = 0
    crashes: int = 0
    cancel: bool = False
    holder: Claimed | None = None
    notes: Counter[str] = field(default_factory=Counter)  # recorded attempts by outcome
    delayed: bool = False
    came_after: frozenset[int] = frozenset()
    waits_for: set[int] = field(default_factory=set)  # of those, what has not been met
    goes_with_them: bool = False  # cancelled when one of them never succeeds


@dataclass
class Open:
    """A producer's open transaction: what is there once it commits."""

    connection: Connection
    jobs: dict[int, Job] = field(default_factory=dict)
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    begun: bool = False


def let_go(jobs: dict[int, Job], parents: Iterable[int]) -> list[int]:
    """These have succeeded: who waits for nobody any more, in the order of their numbers."""
    free = []
    for job_id, job in sorted(jobs.items()):
        if job.state == "blocked" and job.waits_for & set(parents):
            job.waits_for -= set(parents)
            if not job.waits_for:
                free.append(job_id)
    return free


def let_down(jobs: dict[int, Job], parents: Iterable[int]) -> set[int]:
    """These never will: who is cancelled with them, and with those."""
    lost, gone = set(parents), set[int]()
    while True:
        level = {
            job_id
            for job_id, job in jobs.items()
            if job.state == "blocked" and job.goes_with_them and job.waits_for & lost
        }
        if not level:
            return gone
        for job_id in level:
            jobs[job_id].state = "cancelled"
        gone |= level
        lost = level


def in_turn(job: Job) -> tuple[Any, ...]:
    """To sort by, as `claiming.lanes` asks: own lanes, the front first; then lanes of types."""
    if job.lane.startswith("type:"):
        return (1, job.priority, job.lane, job.turn)
    return (0, -job.priority, job.lane != FRONT, job.turn)
