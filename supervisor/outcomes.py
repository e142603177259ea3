"""What ended an attempt, and what that costs. One table, one `match`, no clock and no SQL.

Whatever ends an attempt - the handler, a deadline, a death, a lost host, a drain - is one of the
causes below, and `decide` says what becomes of the job: the table of the README in code.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from jobctl.store.backoff import Chance, backoff_seconds
from jobctl.store.error_group import group_of
from jobctl.store.job_type import JobType

#: What holds for a type that no code has registered yet: the defaults of the decorator.
UNREGISTERED = JobType(
    name="unregistered",
    queue="default",
    priority=0,
    timeout_seconds=300.0,
    soft_timeout_seconds=None,
    max_attempts=5,
    max_crashes=3,
    min_backoff_seconds=10.0,
    max_backoff_seconds=3600.0,
    max_doublings=16,
    max_elapsed_seconds=None,
    ack="late",
    schema_version=1,
    key_ttl_seconds=86_400.0,
    owner=None,
    link=None,
)


#: The class of a job whose hook failed: it is cancelled all the same.
ON_CANCEL = "on_cancel"


class Spent(Protocol):
    """What `decide` must know of the job: budgets used before this attempt."""

    @property
    def attempt(self) -> int: ...
    @property
    def crashes(self) -> int: ...
    @property
    def max_attempts(self) -> int | None: ...
    @property
    def schema_version(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised, or returned what cannot be kept (`permanent`)."""

    error_class: str
    error: str
    code: str | None = None
    stack: str | None = None
    permanent: bool = False
    retry_after: float | None = None
    hold_limit: bool = False  # and nobody of its limit starts before that


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A soft time-out was let through, or the hard deadline came and the process was killed."""

    kind: str  # soft | hard
    error: str
    stack: str | None = None
    exit_reason: str | None = None
    signal: str | None = None


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process died, whatever of, without saying how the attempt ended."""

    exit_reason: str
    signal: str | None = None
    stack: str | None = None
    failure_class: str = "crash"  # or memory


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is over or the host is gone; nobody can say how far it came."""

    because: str


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to be called again later. No attempt is spent."""

    delay: float


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Cancelled, at a safe point or by force. `failed`: the type's hook could not make it good."""

    error: str | None = None
    error_class: str | None = None
    code: str | None = None
    stack: str | None = None
    failed: bool = False
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A stop ran out of patience, or the lease was about to be over. No attempt is spent."""

    because: str


@dataclass(frozen=True, slots=True)
class HandedBack:
    """Claimed, and known not to have started. No attempt, and none is recorded."""


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """This host's code does not know the type, or is older than the arguments."""


Cause = (
    Failed | TimedOut | Crashed | Lost | Snoozed | Cancelled | Interrupted | HandedBack | Unrunnable
)


@dataclass(slots=True)
class Ending:
    """What becomes of one claim; the fields are those of `settle_ended.sql`."""

    job_id: int
    session_id: int
    token: int
    place: str
    outcome: str | None = None
    spent: int = 0
    crashed: int = 0
    delay: float | None = None
    failed: bool = False
    lane_version: int | None = None
    host: str | None = None
    slot: int | None = None
    pid: int | None = None
    started_ago: float | None = None
    exit_reason: str | None = None
    signal: str | None = None
    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    failure_class: str | None = None
    error_class: str | None = None
    error_code: str | None = None
    error: str | None = None
    stack: str | None = None
    hold_limit: bool | None = None
    said: dict[str, Any] | None = None  # its last progress

    def to_dict(self) -> dict[str, Any]:
        """For the JSON array that the statement takes."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        if self.place == "dead":
            group = group_of(self.failure_class, self.error_code, self.error, self.stack)
            told["error_group"] = group.id
        return told


def backoff(policy: JobType, failures: int, chance: Chance = random.random) -> float:
    """Seconds to wait after the `failures`-th failure (from 1), as the type says."""
    return backoff_seconds(
        policy.min_backoff_seconds,
        policy.max_backoff_seconds,
        policy.max_doublings,
        failures,
        chance,
    )


def is_poison(ending: Ending, job: Spent, policy: JobType) -> bool:
    """Whether this death of its process, or host, was one too many; not merely its last attempt."""
    return bool(ending.crashed) and job.crashes + 1 >= policy.max_crashes


def decide(
    job_id: int,
    session_id: int,
    token: int,
    job: Spent,
    policy: JobType,
    cause: Cause,
    elapsed: float,
    chance: Chance = random.random,
) -> Ending:
    """What becomes of a job whose attempt ended of this cause.

    `elapsed`: seconds since its first attempt began. A type that acknowledges early is never run
    twice: what would be tried again is dead.
    """
    ending = Ending(job_id, session_id, token, place="dead")
    early = policy.ack == "early"
    attempts_left = not early and job.attempt + 1 < _most_attempts(job, policy)
    crashes_left = attempts_left and job.crashes + 1 < policy.max_crashes
    over = policy.max_elapsed_seconds is not None and elapsed >= policy.max_elapsed_seconds
    again = "retry" if attempts_left and not over else "dead"
    match cause:
        case HandedBack():
            ending.place = "front"
        case Unrunnable():
            ending.place, ending.lane_version = "lane", job.schema_version
        case Interrupted(because):
            ending.outcome = "interrupted"
            ending.exit_reason = because
            ending.place = "dead" if early else "front"
            if early:
                _blame(ending, "interrupted", "Interrupted", because)
        case Snoozed(delay):
            ending.outcome = "snoozed"
            limit = policy.max_elapsed_seconds
            if early:
                never = "it is acknowledged early and never runs twice, and wanted to run again"
                _blame(ending, "Snooze", "Snooze", never)
            elif limit is not None and elapsed + delay >= limit:
                too_long = f"it may take {limit:g} s in all, and wanted to wait more"
                _blame(ending, "Snooze", "Snooze", too_long)
            else:
                ending.place, ending.delay = "snooze", delay
        case Cancelled(error, error_class, code, stack, failed, forced):
            ending.outcome, ending.spent = "cancelled", 1
            # Whether there is a hook to run, and anything for it to make good, the row knows.
            ending.place = "compensate" if forced else "cancelled"
            ending.error, ending.error_class = error, error_class
            ending.error_code, ending.stack = code, stack
            if failed:
                _blame(ending, ON_CANCEL, error_class or ON_CANCEL, error or "", code, stack)
        case Failed(error_class, error, code, stack, permanent, retry_after, hold_limit):
            ending.outcome, ending.spent = "failed", 1
            _blame(ending, error_class, error_class, error, code, stack)
            if again == "retry" and not permanent:
                ending.place = "retry"
                wait = backoff(policy, job.attempt + 1, chance)
                ending.delay = wait if retry_after is None else retry_after
                ending.hold_limit = hold_limit or None
        case TimedOut(kind, error, stack, exit_reason, signal):
            ending.outcome, ending.spent, ending.place = "timeout", 1, again
            ending.delay = backoff(policy, job.attempt + 1, chance)
            ending.exit_reason, ending.signal = exit_reason, signal
            name = "SoftTimeout" if kind == "soft" else "HardTimeout"
            _blame(ending, "timeout", name, error, stack=stack)
        case Crashed(exit_reason, signal, stack, failure_class):
            ending.outcome, ending.spent, ending.crashed = "crashed", 1, 1
            ending.place = "retry" if crashes_left else "dead"
            ending.delay = backoff(policy, job.attempt + 1, chance)
            ending.exit_reason, ending.signal = exit_reason, signal
            _blame(ending, failure_class, failure_class, exit_reason, stack=stack)
        case Lost(because):
            ending.outcome, ending.spent, ending.crashed = "lost", 1, 1
            ending.place = "front" if crashes_left else "dead"
            ending.exit_reason = because
            _blame(ending, "lost", "lost", because)
    if ending.place == "dead":
        ending.delay = None
    return ending


def _most_attempts(job: Spent, policy: JobType) -> int:
    return policy.max_attempts if job.max_attempts is None else job.max_attempts


def _blame(
    ending: Ending,
    failure_class: str,
    error_class: str,
    error: str,
    code: str | None = None,
    stack: str | None = None,
) -> None:
    ending.failed = True
    ending.failure_class = failure_class
    ending.error_class = error_class
    ending.error_code = code
    ending.error = error
    ending.stack = stack
