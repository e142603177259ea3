"""What ended an attempt and what that costs: the table of the README, row by row, and its laws."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.store.job_type import JobType
from jobctl.store.states import Outcome, State, may_follow
from jobctl.supervisor.outcomes import (
    UNREGISTERED,
    Cancelled,
    Cause,
    Crashed,
    Ending,
    Failed,
    HandedBack,
    Interrupted,
    Lost,
    Snoozed,
    TimedOut,
    Unrunnable,
    backoff,
    decide,
    is_poison,
)
from tests.exploring import explore

POLICY = replace(UNREGISTERED, max_attempts=5, max_crashes=3, max_elapsed_seconds=100.0)
EARLY = replace(POLICY, ack="early")

RAISED = Failed("ValueError", "no such invoice", code="E1", stack="Traceback ...")
PERMANENT = replace(RAISED, permanent=True)
SOFT = TimedOut("soft", "took more than 5 s")
HARD = TimedOut("hard", "took more than 9 s", stack="all threads", signal="SIGKILL")
CRASHED = Crashed("killed by SIGSEGV", "SIGSEGV")
MEMORY = Crashed("more than 1 GiB", "SIGKILL", failure_class="memory")
LOST = Lost("lease expired")

#: Where a job stands once it has gone to a place.
STANDS = {
    "retry": State.RETRYING,
    "snooze": State.SCHEDULED,
    "dead": State.DEAD,
    "cancelled": State.CANCELLED,
    "front": State.QUEUED,
    "lane": State.QUEUED,
}


@dataclass(frozen=True)
class Job:
    """What was spent before this attempt."""

    attempt: int = 0
    crashes: int = 0
    max_attempts: int | None = None
    schema_version: int = 7


def end(cause: Cause, job: Job = Job(), policy: JobType = POLICY, elapsed: float = 1.0) -> Ending:
    return decide(1, 2, 3, job, policy, cause, elapsed, chance=lambda: 1.0)


FRESH, LAST, LAST_CRASH = Job(), Job(attempt=4), Job(attempt=2, crashes=2)
FEWER = Job(attempt=1, max_attempts=2)  # the job itself allows less than its type


# cause, what was spent, seconds so far: outcome, attempts spent, crashes counted, place
@pytest.mark.parametrize(
    ("cause", "job", "elapsed", "outcome", "spent", "crashed", "place"),
    [
        # raised: failed, spent; against max_attempts and max_elapsed
        (RAISED, FRESH, 1, "failed", 1, 0, "retry"),
        (RAISED, LAST, 1, "failed", 1, 0, "dead"),
        (RAISED, FEWER, 1, "failed", 1, 0, "dead"),
        (RAISED, FRESH, 100, "failed", 1, 0, "dead"),
        (RAISED, LAST_CRASH, 1, "failed", 1, 0, "retry"),
        # Permanent, a class listed as such, a result that cannot be kept: failed, spent, dead
        (PERMANENT, FRESH, 1, "failed", 1, 0, "dead"),
        # soft timeout let through, hard deadline: timeout, spent; max_attempts and max_elapsed
        (SOFT, FRESH, 1, "timeout", 1, 0, "retry"),
        (SOFT, LAST, 1, "timeout", 1, 0, "dead"),
        (HARD, FRESH, 1, "timeout", 1, 0, "retry"),
        (HARD, LAST, 1, "timeout", 1, 0, "dead"),
        (HARD, FRESH, 100, "timeout", 1, 0, "dead"),
        (HARD, LAST_CRASH, 1, "timeout", 1, 0, "retry"),
        # died: crashed, spent; against max_crashes and max_attempts
        (CRASHED, FRESH, 1, "crashed", 1, 1, "retry"),
        (CRASHED, LAST, 1, "crashed", 1, 1, "dead"),
        (CRASHED, LAST_CRASH, 1, "crashed", 1, 1, "dead"),
        (CRASHED, FRESH, 100, "crashed", 1, 1, "retry"),
        (MEMORY, FRESH, 1, "crashed", 1, 1, "retry"),
        (MEMORY, LAST_CRASH, 1, "crashed", 1, 1, "dead"),
        # lease expired, host lost: lost, spent; max_crashes and max_attempts; again at once
        (LOST, FRESH, 1, "lost", 1, 1, "front"),
        (LOST, LAST, 1, "lost", 1, 1, "dead"),
        (LOST, LAST_CRASH, 1, "lost", 1, 1, "dead"),
        (LOST, FRESH, 100, "lost", 1, 1, "front"),
        # Snooze: snoozed, given back; against max_elapsed
        (Snoozed(30), FRESH, 1, "snoozed", 0, 0, "snooze"),
        (Snoozed(30), LAST, 1, "snoozed", 0, 0, "snooze"),
        (Snoozed(99), FRESH, 1, "snoozed", 0, 0, "dead"),
        # cancelled at a safe point, or by force: cancelled, spent
        (Cancelled(), FRESH, 1, "cancelled", 1, 0, "cancelled"),
        (Cancelled("by force"), LAST, 100, "cancelled", 1, 0, "cancelled"),
        # drain or reload ran out of patience: interrupted, given back, the front lane
        (Interrupted("drain"), FRESH, 1, "interrupted", 0, 0, "front"),
        (Interrupted("drain"), LAST_CRASH, 100, "interrupted", 0, 0, "front"),
        # known not to have started; type unknown or arguments newer: nothing is recorded
        (HandedBack(), LAST_CRASH, 100, None, 0, 0, "front"),
        (Unrunnable(), LAST_CRASH, 100, None, 0, 0, "lane"),
    ],
)
def test_the_table(
    cause: Cause,
    job: Job,
    elapsed: float,
    outcome: str | None,
    spent: int,
    crashed: int,
    place: str,
) -> None:
    ending = end(cause, job, elapsed=elapsed)
    assert (ending.outcome, ending.spent, ending.crashed) == (outcome, spent, crashed)
    assert ending.place == place


@pytest.mark.parametrize(
    "cause", [RAISED, PERMANENT, SOFT, HARD, CRASHED, LOST, Snoozed(5), Interrupted("drain")]
)
def test_what_is_acknowledged_early_never_runs_again(cause: Cause) -> None:
    """Whatever ended it. What has not started may go back: it has not run."""
    ending = end(cause, policy=EARLY)
    assert ending.place == "dead"
    assert ending.failure_class
    assert ending.error
    assert end(HandedBack(), policy=EARLY).place == "front"
    assert end(Unrunnable(), policy=EARLY).place == "lane"


def test_a_job_without_a_limit_in_time_may_go_on_for_ever() -> None:
    policy = replace(POLICY, max_elapsed_seconds=None)
    assert end(RAISED, policy=policy, elapsed=1e9).place == "retry"
    assert end(Snoozed(1e9), policy=policy, elapsed=1e9).place == "snooze"


def test_a_handler_may_say_when_to_try_again() -> None:
    """RetryAfter decides the delay; it gives no attempt that is not there."""
    told = replace(RAISED, retry_after=77.5)
    assert end(told).delay == 77.5
    assert end(replace(RAISED, retry_after=0.0)).delay == 0.0
    assert end(told, LAST).delay is None
    assert end(told, LAST).place == "dead"


def test_an_argument_that_is_newer_than_the_code_names_its_version() -> None:
    assert end(Unrunnable()).lane_version == 7


def test_the_error_is_that_of_the_job_and_of_the_attempt() -> None:
    ending = end(RAISED)
    assert ending.failed
    assert (ending.failure_class, ending.error_class) == ("ValueError", "ValueError")
    assert (ending.error_code, ending.error, ending.stack) == (
        "E1", "no such invoice", "Traceback ...",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "failure_class"),
    [(SOFT, "timeout"), (HARD, "timeout"), (CRASHED, "crash"), (MEMORY, "memory"), (LOST, "lost")],
)
def test_failures_that_raised_nothing_have_a_class_of_their_own(
    cause: Cause, failure_class: str
) -> None:
    assert end(cause).failure_class == failure_class


def test_a_signal_and_an_exit_are_told_with_the_attempt() -> None:
    assert (end(CRASHED).exit_reason, end(CRASHED).signal) == ("killed by SIGSEGV", "SIGSEGV")
    assert (end(HARD).signal, end(HARD).stack) == ("SIGKILL", "all threads")


# Laws, for any cause, job and policy --------------------------------------------------------------

seconds = st.floats(0, 1e6)
causes: st.SearchStrategy[Cause] = st.one_of(
    st.builds(
        Failed,
        st.just("E"),
        st.just("why"),
        permanent=st.booleans(),
        retry_after=st.none() | seconds,
    ),
    st.sampled_from([SOFT, HARD, CRASHED, MEMORY, LOST, Cancelled(), Interrupted("drain")]),
    st.builds(Snoozed, seconds),
    st.sampled_from([HandedBack(), Unrunnable()]),
)
policies = st.builds(
    replace,
    st.just(UNREGISTERED),
    max_attempts=st.integers(1, 8),
    max_crashes=st.integers(1, 8),
    max_elapsed_seconds=st.none() | seconds,
    ack=st.sampled_from(["late", "late", "early"]),
)


@explore(300)
@given(
    causes,
    st.builds(Job, st.integers(0, 9), st.integers(0, 9), st.none() | st.integers(1, 9)),
    policies,
    seconds,
)
def test_every_ending_makes_sense(cause: Cause, job: Job, policy: JobType, elapsed: float) -> None:
    """It goes where a running job can go, costs what its outcome costs, and says why it is dead."""
    ending = decide(1, 2, 3, job, policy, cause, elapsed)
    assert (ending.job_id, ending.session_id, ending.token) == (1, 2, 3)
    assert may_follow(State.RUNNING, STANDS[ending.place])
    if ending.outcome is None:
        assert (ending.spent, ending.crashed, ending.failed) == (0, 0, False)
    else:
        outcome = Outcome(ending.outcome)
        assert ending.spent == outcome.spends_attempt
        assert ending.crashed == outcome.counts_as_crash
    assert (ending.delay is not None) == (ending.place in ("retry", "snooze"))
    assert ending.delay is None or ending.delay >= 0
    assert (ending.lane_version is not None) == (ending.place == "lane")
    if ending.place == "dead":
        assert ending.failed
        assert ending.failure_class
        assert ending.error


@explore(200)
@given(st.lists(causes, min_size=1, max_size=60), policies, st.none() | st.integers(1, 8))
def test_no_path_is_longer_than_its_budgets(
    story: list[Cause], policy: JobType, own_limit: int | None
) -> None:
    """However attempts end, in whatever order: deaths stay within max_crashes, attempts within
    max_attempts, and what is acknowledged early is started once."""
    job = Job(max_attempts=own_limit)
    starts = 0
    for cause in story:
        ending = decide(1, 2, 3, job, policy, cause, elapsed=0.0)
        starts += ending.outcome is not None
        job = replace(job, attempt=job.attempt + ending.spent, crashes=job.crashes + ending.crashed)
        assert job.crashes <= policy.max_crashes
        assert job.attempt <= (own_limit or policy.max_attempts)
        assert starts <= 1 or policy.ack == "late"
        if ending.place in ("dead", "cancelled"):
            break
    else:
        assert job.crashes < policy.max_crashes
        assert job.attempt < (own_limit or policy.max_attempts)


@pytest.mark.parametrize(
    ("cause", "job", "poison"),
    [
        (CRASHED, Job(attempt=2, crashes=2), True),
        (LOST, Job(attempt=2, crashes=2), True),
        (CRASHED, Job(attempt=4, crashes=0), False),  # its last attempt, and its first death
        (RAISED, Job(attempt=2, crashes=2), False),
        (HARD, Job(attempt=4, crashes=2), False),
    ],
)
def test_one_death_is_no_poison(cause: Cause, job: Job, poison: bool) -> None:
    """Somebody is woken for those that kill again and again, not for whatever ended by a death."""
    assert is_poison(decide(1, 2, 3, job, POLICY, cause, elapsed=0.0), job, POLICY) is poison


# Backoff ------------------------------------------------------------------------------------------


def shape(least: float, most: float, doublings: int, failures: int) -> list[float]:
    policy = replace(
        UNREGISTERED,
        min_backoff_seconds=least,
        max_backoff_seconds=most,
        max_doublings=doublings,
    )
    return [backoff(policy, n, chance=lambda: 1.0) for n in range(1, failures + 1)]


def test_backoff_has_the_shape_of_cloud_tasks() -> None:
    """Its documentation's own example: 10 s, doubled three times, then linear, up to 300 s."""
    assert shape(10, 300, 3, 9) == [10, 20, 40, 80, 160, 240, 300, 300, 300]


def test_backoff_without_doublings_is_linear() -> None:
    assert shape(10, 45, 0, 6) == [10, 20, 30, 40, 45, 45]


def test_backoff_by_default_grows_from_ten_seconds_to_an_hour() -> None:
    delays = shape(
        UNREGISTERED.min_backoff_seconds,
        UNREGISTERED.max_backoff_seconds,
        UNREGISTERED.max_doublings,
        11,
    )
    assert delays == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]


@explore(500)
@given(
    st.integers(1, 10**6),
    st.tuples(st.floats(1e-3, 3e9), st.floats(1e-3, 3e9)).map(sorted),
    st.integers(0, 64),
    st.floats(0, 1, exclude_max=True),
)
def test_backoff_is_positive_and_bounded_for_any_number_of_failures(
    failures: int, bounds: list[float], doublings: int, chance: float
) -> None:
    """No overflow, no zero, nothing above the maximum; chance takes a fifth at most; and it never
    falls as failures grow."""
    least, most = bounds
    policy = replace(
        UNREGISTERED,
        min_backoff_seconds=least,
        max_backoff_seconds=most,
        max_doublings=doublings,
    )
    delay = backoff(policy, failures, chance=lambda: chance)
    full = backoff(policy, failures, chance=lambda: 1.0)
    assert 0 < delay <= most
    assert 0.8 * full * (1 - 1e-9) <= delay <= full
    assert full <= backoff(policy, failures + 1, chance=lambda: 1.0)
