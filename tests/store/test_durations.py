"""Durations read as people mean them, and what nobody can mean is refused with a sentence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.store.durations import LONGEST, format_duration, parse_duration


@pytest.mark.parametrize(
    ("given_value", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("2h", 7_200),
        ("7d", 604_800),
        ("1w", 604_800),
        ("500ms", 0.5),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        (" 1.5h ", 5_400),
        ("2H", 7_200),
        ("90", 90),
        ("0.25", 0.25),
        ("0", 0),
        (0, 0),
        (30, 30),
        (0.1, 0.1),
        (timedelta(minutes=3), 180),
        (LONGEST, LONGEST.total_seconds()),
    ],
)
def test_what_people_write(given_value: Any, seconds: float) -> None:
    """Text, numbers of seconds and timedeltas mean what they say."""
    assert parse_duration(given_value).total_seconds() == seconds


@pytest.mark.parametrize(
    "refused",
    [
        "",
        " ",
        "soon",
        "10 apples",
        "-5s",
        "5x",
        "s",
        "1h30",
        "1e3s",
        "\u0663s",
        "nan",
        "inf",
        "9" * 400,
        "9" * 400 + "s",
        "37000d",
        -1,
        -0.001,
        float("nan"),
        float("inf"),
        float("-inf"),
        1e300,
        10**400,
        True,
        False,
        None,
        b"5s",
        [5],
        timedelta(seconds=-1),
        timedelta(days=36_526),
        timedelta.max,
    ],
)
def test_what_is_refused(refused: Any) -> None:
    """Everything else is a ValueError with a sentence, and nothing else."""
    with pytest.raises(ValueError, match="duration") as caught:
        parse_duration(refused)
    assert len(str(caught.value)) < 300


@given(st.text() | st.floats() | st.integers() | st.timedeltas())
def test_reads_or_refuses(anything: str | float | timedelta) -> None:
    """Whatever comes, a duration in range comes out or a ValueError."""
    try:
        duration = parse_duration(anything)
    except ValueError:
        return
    assert timedelta(0) <= duration <= LONGEST


@given(st.integers(0, int(LONGEST.total_seconds())))
def test_whole_seconds_survive_being_shown(seconds: int) -> None:
    """What is shown reads back as the same duration."""
    assert parse_duration(format_duration(seconds)).total_seconds() == seconds


@given(st.integers(0, 59_999))
def test_milliseconds_below_a_minute_survive_being_shown(milliseconds: int) -> None:
    """Short ones are shown to the millisecond."""
    shown = format_duration(milliseconds / 1_000)
    assert parse_duration(shown) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (59.9996, "1m"),
        (90, "1m30s"),
        (3_600, "1h"),
        (90_061, "1d1h1m1s"),
        (-5, "-5s"),
        (timedelta(days=7), "7d"),
        (float("inf"), "forever"),
    ],
)
def test_how_they_are_shown(seconds: float, shown: str) -> None:
    """The shortest text that people read at a glance."""
    assert format_duration(seconds) == shown
