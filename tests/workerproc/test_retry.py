"""A retry policy that exists makes sense, and the errors that steer it carry what they say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobctl.workerproc.errors import JobctlError, Permanent, RetryAfter, Snooze, SoftTimeout
from jobctl.workerproc.retry import Retry


def test_the_defaults() -> None:
    """Those of the contract."""
    retry = Retry()
    assert (retry.max_attempts, retry.max_crashes, retry.max_doublings) == (5, 3, 16)
    assert (retry.min_backoff_seconds, retry.max_backoff_seconds) == (10.0, 3_600.0)
    assert retry.max_elapsed_seconds is None
    assert not retry.is_permanent(ValueError())


def test_durations_in_any_form() -> None:
    """As everywhere."""
    retry = Retry(min_backoff=5, max_backoff=timedelta(minutes=2), max_elapsed="1d")
    assert retry.min_backoff_seconds == 5.0
    assert retry.max_backoff_seconds == 120.0
    assert retry.max_elapsed_seconds == 86_400.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": 2.5},
        {"max_crashes": 0},
        {"max_doublings": -1},
        {"max_doublings": 65},
        {"min_backoff": "soon"},
        {"min_backoff": -1},
        {"max_backoff": float("nan")},
        {"min_backoff": "2h"},
        {"max_elapsed": "forever"},
        {"permanent": ValueError},
        {"permanent": [ValueError]},
        {"permanent": (5,)},
        {"permanent": (int,)},
    ],
)
def test_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    """Said where it is written, naming the field."""
    with pytest.raises(ValueError, match=r"Retry: .*"):
        Retry(**wrong)


def test_permanent_classes_and_their_children() -> None:
    """As in an except clause."""
    retry = Retry(permanent=(LookupError, ValueError))
    assert retry.is_permanent(KeyError("x"))
    assert not retry.is_permanent(TypeError())


def test_what_the_errors_carry() -> None:
    """Seconds and codes, and a message for people."""
    assert RetryAfter("1m").seconds == 60.0
    assert RetryAfter(5, "busy", code="429").code == "429"
    assert str(RetryAfter(5, "busy")) == "busy"
    assert Snooze(timedelta(minutes=1)).seconds == 60.0
    assert Permanent("gone", code="OLD").code == "OLD"
    for kind in (Permanent, RetryAfter, Snooze):
        assert issubclass(kind, JobctlError)
    assert not issubclass(SoftTimeout, Exception)


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "later", None, 10**400])
def test_delays_that_are_none(delay: Any) -> None:
    """A header that a server sent wrong is an ordinary failure of the handler."""
    for kind in (RetryAfter, Snooze):
        with pytest.raises(ValueError, match="duration"):
            kind(delay)
