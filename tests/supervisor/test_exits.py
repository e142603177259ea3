"""Ends in words, and how long to wait after them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.supervisor.backoff import Backoff, TokenBucket
from jobctl.supervisor.endings import check_ending
from jobctl.supervisor.exits import ExitKind, describe_exit
from jobctl.workerproc.frames import FrameError


def _status_of(end: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid == 0:
        end()
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def _killed_by(number: int) -> int:
    def end() -> NoReturn:
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        while True:
            os.kill(os.getpid(), number)

    return _status_of(end)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (7, "exited with code 7"),
        (70, "exited with code 70 (jobctl's own code in it failed, see its output)"),
        (78, "exited with code 78 (the app does not exist; restarting will not help)"),
    ],
)
def test_exit_codes(code: int, words: str) -> None:
    """Ours mean something; others are numbers."""
    reason = describe_exit(_status_of(lambda: os._exit(code)))
    assert (reason.kind, reason.code, reason.signal) == (ExitKind.EXITED, code, None)
    assert reason.sentence == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGTERM, "killed by SIGTERM"),
        (signal.SIGXCPU, "killed by SIGXCPU (its limit of CPU time ran out)"),
        (40, "killed by signal 40"),
    ],
)
def test_signals(number: int, words: str) -> None:
    """By name, with what it is likely to mean."""
    reason = describe_exit(_killed_by(number))
    assert (reason.kind, reason.code, reason.signal) == (ExitKind.SIGNALLED, None, number)
    assert reason.sentence == words


def test_a_kill_of_ours_is_told_from_a_strangers() -> None:
    """The same status, another sentence."""
    status = _killed_by(signal.SIGKILL)
    assert describe_exit(status, expected_kill=True).sentence == "killed by the supervisor"
    assert "out-of-memory" in describe_exit(status).sentence


def test_delays_grow_and_are_spread() -> None:
    """None at first, never more than the limit, back to the start when all is well."""
    limits = [0.1 * 2**n for n in range(9)] + [30.0] * 4
    delays = [[backoff.next_delay() for _ in limits] for backoff in (Backoff() for _ in range(200))]
    for column, limit in zip(zip(*delays, strict=True), limits, strict=True):
        assert min(column) >= 0.0 and max(column) <= limit
        assert max(column) > 0.8 * limit and min(column) < 0.2 * limit
    backoff = Backoff()
    for _ in range(5000):
        backoff.next_delay()
    assert backoff.next_delay(most=3.0) <= 3.0
    backoff.reset()
    assert backoff.next_delay() <= 0.1


@given(st.lists(st.floats(0.0, 3.0), max_size=60))
def test_the_bucket_never_gives_more_than_it_may(pauses: list[float]) -> None:
    """`burst` at once and `rate` a second, whatever the pattern."""
    now, taken, bucket = 100.0, 0, TokenBucket(2.0, 5.0, 100.0)
    for pause in pauses:
        now += pause
        before = bucket.seconds_until_next(now)
        took = bucket.take(now)
        assert took == (before == 0.0)
        taken += took
        assert taken <= 5.0 + 2.0 * (now - 100.0) + 1e-6
    assert bucket.take(now + bucket.seconds_until_next(now) + 1e-6)


WORDS = st.text("ax é\0\ud800", max_size=8)
GOOD: dict[str, Any] = {
    "token": 5,
    "outcome": "failed",
    "started_ns": 10,
    "ended_ns": 20,
    "error_class": "ValueError",
    "error": "x",
    "error_code": None,
    "permanent": False,
}


@pytest.mark.parametrize(
    "change",
    [
        {"token": 6},
        {"token": "5"},
        {"outcome": "crashed"},
        {"outcome": ["failed"]},
        {"outcome": None},
        {"started_ns": 9},
        {"started_ns": 21},
        {"ended_ns": 31},
        {"ended_ns": 2.0},
        {"started_ns": True},
        {"error": "\0"},
        {"error": "\ud800"},
        {"error": "x" * 300_000},
        {"error": 5},
        {"error": None},
        {"error_class": None},
        {"stack": {}},
        {"result": {}},
        {"permanent": 1},
        {"retry_after_seconds": float("nan")},
        {"retry_after_seconds": -1},
        {"retry_after_seconds": 1e30},
        {"retry_after_seconds": True},
        {"retry_after_seconds": 10**400},
        {"outcome": "snoozed"},
        {"outcome": "timeout", "error": None},
    ],
)
def test_endings_that_are_not_believed(change: dict[str, Any]) -> None:
    """What comes from a slot goes into a batch with others only if all of it can be stored."""
    check_ending(GOOD, 5, 10, 30)
    with pytest.raises(FrameError):
        check_ending({**GOOD, **change}, 5, 10, 30)


@given(
    st.dictionaries(
        st.sampled_from([*GOOD, "stack", "why", "result", "snooze_seconds"]),
        st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.lists(st.none()),
    )
)
def test_any_ending_is_believed_or_refused(body: dict[str, Any]) -> None:
    """Never another exception."""
    with contextlib.suppress(FrameError):
        check_ending({**GOOD, **body}, 5, 10, 30)
