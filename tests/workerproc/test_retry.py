"""A retry policy that exists makes sense, and the errors that steer it carry what they say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.workerproc.errors import JobctlError, Permanent, RetryAfter, Snooze, SoftTimeout
from jobctl.workerproc.retry import Backoff, Retry, Verdict
from jobctl.workerproc.retry_after import LONGEST_RETRY_AFTER
from tests.exploring import explore


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
    """A snooze is the handler's own word: what makes no sense is a mistake."""
    with pytest.raises(ValueError, match="duration"):
        Snooze(delay)


# What a server says -------------------------------------------------------------------------------

SENT = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("120", 120.0),
        (" 120 ", 120.0),
        ("0", 0.0),
        ("-5", 0.0),
        (-5, 0.0),
        (timedelta(seconds=-5), 0.0),
        (1.5, 1.5),
        ("90s", 90.0),
        ("Sun, 06 Nov 1994 08:51:37 GMT", 120.0),
        ("Sunday, 06-Nov-94 08:51:37 GMT", 120.0),
        ("Sun Nov  6 08:51:37 1994", 120.0),
        ("Sun, 06 Nov 1994 09:51:37 +0100", 120.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        (datetime(1994, 11, 6, 8, 50, 37, tzinfo=UTC), 60.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_RETRY_AFTER),
        ("9" * 150, LONGEST_RETRY_AFTER),
        (10**400, LONGEST_RETRY_AFTER),
        (float("inf"), LONGEST_RETRY_AFTER),
        (1e300, LONGEST_RETRY_AFTER),
        (timedelta.max, LONGEST_RETRY_AFTER),
        ("31d", LONGEST_RETRY_AFTER),
        ("30d", LONGEST_RETRY_AFTER),
        (None, None),
    ],
)
def test_when_a_server_wants_to_be_asked_again(said: Any, seconds: float | None) -> None:
    """Seconds or a date; what is past means now, what is absurd a month, nothing the backoff."""
    error = RetryAfter(said, sent=SENT)
    assert error.seconds == seconds
    assert ("cut to 30 days" in str(error)) == (seconds == LONGEST_RETRY_AFTER and said != "30d")
    assert len(str(error)) < 200


def test_a_number_that_cannot_be_shown() -> None:
    """Python refuses to write out thousands of digits."""
    error = RetryAfter(10**5000)
    assert error.seconds == LONGEST_RETRY_AFTER
    assert "far more" in str(error)


def test_a_date_counts_from_the_servers_own_clock() -> None:
    """And from this host's where the server did not say when it answered, or said it wrong."""
    soon = datetime.now(UTC) + timedelta(seconds=100)
    header = format_datetime(soon, usegmt=True)
    for sent in (None, "nonsense", "x" * 10_000, datetime(2020, 1, 1)):  # noqa: DTZ001 - the mistake
        seconds = RetryAfter(header, sent=sent).seconds
        assert seconds is not None
        assert 90 < seconds <= 100
    # An hour fast, as this host sees it, and right about the distance all the same.
    fast = format_datetime(soon + timedelta(hours=1, seconds=-30), usegmt=True)
    later = format_datetime(soon + timedelta(hours=1), usegmt=True)
    assert RetryAfter(later, sent=fast).seconds == 30.0


NO_ZONE = datetime(2030, 1, 1)  # noqa: DTZ001 - that is the mistake
FULL_WIDTH = "\uff11\uff12"  # digits, to Python


@pytest.mark.parametrize(
    "said",
    ["soon", "", "10 minuts", "x" * 10_000, float("nan"), True, b"120", [], "Sun, 99 Nov 1994",
     NO_ZONE, "1e5", FULL_WIDTH],
)  # fmt: skip
def test_what_cannot_be_read(said: Any) -> None:
    """An ordinary failure of the handler, which says what could not be read."""
    with pytest.raises(ValueError, match=r"duration|moment|date"):
        RetryAfter(said)


@explore(300)
@given(st.one_of(st.text(max_size=60), st.integers(), st.floats(), st.timedeltas()))
def test_whatever_a_server_says(said: Any) -> None:
    """A bounded wait, or a ValueError; never anything else."""
    try:
        seconds = RetryAfter(said).seconds
    except ValueError:
        return
    assert seconds is not None
    assert 0.0 <= seconds <= LONGEST_RETRY_AFTER


# By class -----------------------------------------------------------------------------------------


class RateLimited(Exception):
    """Of a service that is called."""


class OverQuota(RateLimited):
    """A child of it."""


def test_a_class_has_a_backoff_of_its_own() -> None:
    """As in an except clause: children too, and the first that fits."""
    retry = Retry(
        max_attempts=10,
        permanent=(ValueError,),
        per_class={
            OverQuota: Backoff(min="1h", max="1h"),
            RateLimited: Backoff(min="1m", max="1h", max_attempts=8),
            OSError: Backoff(min=1, max=1, max_attempts=2),
        },
    )

    def of(error: BaseException, attempt: int) -> Verdict:
        return retry.verdict(error, attempt, chance=lambda: 1.0)

    assert of(OverQuota(), 1) == Verdict(delay_seconds=3600.0)
    assert [of(RateLimited(), n).delay_seconds for n in (1, 2, 3)] == [60.0, 120.0, 240.0]
    assert of(RateLimited(), 8) == Verdict(permanent=True)
    assert of(ConnectionError(), 1) == Verdict(delay_seconds=1.0)
    assert of(ConnectionError(), 2) == Verdict(permanent=True)
    assert of(UnicodeError(), 1) == Verdict(permanent=True)
    assert of(KeyError(), 1) == Verdict()
    waits = {retry.verdict(RateLimited(), 1).delay_seconds for _ in range(50)}
    assert len(waits) > 25  # chance has its part
    assert all(wait is not None and 48.0 <= wait <= 60.0 for wait in waits)


def test_a_policy_does_not_change_with_the_dict_that_it_was_made_of() -> None:
    """It was declared once."""
    classes: dict[type[BaseException], Backoff] = {OSError: Backoff(min="1m")}
    retry = Retry(per_class=classes)
    classes.clear()
    assert list(retry.per_class) == [OSError]
    with pytest.raises(TypeError):
        retry.per_class[ValueError] = Backoff()  # type: ignore[index]
    assert len({Retry(), retry}) == 2


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"per_class": [OSError]}, "must be a dict"),
        ({"per_class": {"OSError": Backoff()}}, "exception classes"),
        ({"per_class": {int: Backoff()}}, "exception classes"),
        ({"per_class": {OSError: Retry()}}, r"OSError must be a jobctl\.Backoff"),
        ({"per_class": {OSError: "1m"}}, r"must be a jobctl\.Backoff"),
        ({"per_class": {KeyError: Backoff()}, "permanent": (LookupError,)}, "choose one"),
        ({"per_class": {OSError: Backoff(max_attempts=6)}}, "more than the max_attempts of all"),
    ],
)
def test_policies_by_class_that_make_no_sense(wrong: dict[str, Any], sentence: str) -> None:
    """Said where it is written, naming the class."""
    with pytest.raises(ValueError, match=f"Retry: .*{sentence}"):
        Retry(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"min": "2h"}, {"min": -1}, {"max": "x"}, {"doublings": 65}, {"max_attempts": 0}],
)
def test_backoffs_that_make_no_sense(wrong: dict[str, Any]) -> None:
    """Likewise."""
    with pytest.raises(ValueError, match=r"Backoff: .*"):
        Backoff(**wrong)
