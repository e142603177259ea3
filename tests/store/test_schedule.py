"""When a cron fires: expressions, zones, and what the clocks' changes do."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobctl.store.schedule import ALIASES, Schedule
from tests.store import zones

SINCE, UNTIL = datetime(2025, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
DAYS = timedelta(days=3)


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _local(schedule: Schedule, after: str, many: int) -> list[str]:
    zone = ZoneInfo(schedule.tz)
    return [
        moment.astimezone(zone).strftime("%m-%d %H:%M:%S%z")
        for moment in islice(schedule.after(_at(after)), many)
    ]


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_the_expression_that_it_stands_for(alias: str) -> None:
    begin = _at("2026-11-29T12:00Z")
    plain = Schedule(ALIASES[alias])
    assert list(islice(Schedule(alias).after(begin), 5)) == list(islice(plain.after(begin), 5))


@pytest.mark.parametrize(
    ("expression", "tz", "word"),
    [
        ("@reboot", "UTC", "no moment"),
        ("@every 5m", "UTC", "fields"),
        ("@fortnightly", "UTC", "@daily"),
        ("* * * *", "UTC", "4 fields"),
        ("* * * * * * *", "UTC", "7 fields"),
        ("60 * * * *", "UTC", "bad minute"),
        ("* 5-1 * * *", "UTC", "bad hour"),
        ("0 0 31 2 *", "UTC", "bad day-of-month"),
        ("", "UTC", "0 fields"),
        ("* * * * *", "Europe/Brelin", "Europe/Berlin"),
        ("* * * * *", "localtime", "no time zone"),
        ("* * * * *", "../../etc/passwd", "no time zone"),
        ("* * * * *", "", "no time zone"),
    ],
)
def test_what_is_no_schedule_is_refused_with_a_sentence(
    expression: str, tz: str, word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        Schedule(expression, tz)


def test_a_fixed_time_fires_once_in_spring_and_once_in_autumn() -> None:
    """As Debian's cron does: at the end of the gap, and the first of the two."""
    nightly = Schedule("30 2 * * *", "Europe/Berlin")
    assert _local(nightly, "2026-03-28T12:00Z", 2) == ["03-29 03:00:00+0200", "03-30 02:30:00+0200"]
    assert _local(nightly, "2026-10-24T12:00Z", 2) == ["10-25 02:30:00+0200", "10-26 02:30:00+0100"]


def test_a_wildcard_and_seconds_follow_the_time_that_passes() -> None:
    """The repeated hour fires twice, the missing one never was."""
    half_hours = Schedule("*/30 * * * *", "Europe/Berlin")
    assert _local(half_hours, "2026-10-25T00:10Z", 4) == [
        "10-25 02:30:00+0200", "10-25 02:00:00+0100", "10-25 02:30:00+0100", "10-25 03:00:00+0100",
    ]  # fmt: skip
    assert _local(half_hours, "2026-03-29T00:10Z", 2) == [
        "03-29 01:30:00+0100", "03-29 03:00:00+0200",
    ]  # fmt: skip
    seconds = Schedule("*/20 * * * * *", "Europe/Berlin")
    assert _local(seconds, "2026-03-29T00:59:30Z", 3) == [
        "03-29 01:59:40+0100", "03-29 03:00:00+0200", "03-29 03:00:20+0200",
    ]  # fmt: skip


def test_asking_from_within_the_repeated_hour_gives_nothing_that_has_passed() -> None:
    nightly = Schedule("30 2 * * *", "Europe/Berlin")
    assert _local(nightly, "2026-10-25T01:10Z", 1) == ["10-26 02:30:00+0100"]


def test_whatever_the_question_begins_with_the_answer_is_the_same() -> None:
    """Two leaders ask from different moments: what both see, they see alike."""
    for tz in ("Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana"):
        for change in zones.transitions(ZoneInfo(tz), SINCE, _at("2026-01-01T00:00Z")):
            for expression in ("30 2 * * *", "*/30 * * * *", "15 0,1,2 * * *", "0 30 2 * * *"):
                schedule = Schedule(expression, tz)
                begin = change - timedelta(days=1)
                whole = list(schedule.between(begin, change + timedelta(days=2)))
                for minutes in range(-180, 181, 7):
                    later = change + timedelta(minutes=minutes, seconds=11)
                    part = list(schedule.between(later, change + timedelta(days=2)))
                    assert part == [each for each in whole if each > later], (tz, expression, later)


@given(
    st.sampled_from(
        ["* * * * *", "*/7 * * * *", "0 3 * * *", "0 0 1 * *", "* * * * * 1", "*/5 * * * * *"]
    ),
    st.integers(0, 10_000),
    st.integers(1, 30),
)
@settings(deadline=None, max_examples=40)
def test_the_latest_are_the_last_of_all(expression: str, minutes: int, most: int) -> None:
    schedule = Schedule(expression)
    until = _at("2026-11-29T12:00:07Z")
    after = until - timedelta(minutes=minutes if expression.count(" ") == 4 else minutes // 60)
    assert schedule.latest(after, until, most) == list(schedule.between(after, until))[-most:]


def test_the_latest_of_very_many_are_found_without_counting_them() -> None:
    """A second's cron after ninety days: nobody waits for eight million of them."""
    until = _at("2026-11-29T12:00Z")
    found = Schedule("* * * * * 1").latest(until - timedelta(days=90), until, 3)
    assert [each.isoformat() for each in found] == [
        f"2026-11-23T23:59:{second}+00:00" for second in (57, 58, 59)
    ]


def test_every_zone_whose_clocks_change_against_another_way_of_working_it_out() -> None:
    """One zone of each kind, and half hours about the changes; `make cron-soak` takes every zone
    and all three years."""
    kinds = zones.distinct(zones.changing_zones(SINCE, UNTIL))
    assert len(kinds) >= 25
    for name, changes in kinds.items():
        compare_fixed_times(name)
        for change in changes:
            compare_half_hours(name, change - DAYS / 3, change + DAYS / 3)


def compare_fixed_times(name: str) -> int:
    """How many were compared."""
    zone = ZoneInfo(name)
    nightly = list(Schedule("30 2 * * *", name).between(SINCE, UNTIL))
    assert nightly == zones.at_a_fixed_time(zone, time(2, 30), SINCE, UNTIL), name
    months = list(Schedule("0 0 L * *", name).between(SINCE, UNTIL))
    assert months == zones.at_the_end_of_months(zone, SINCE, UNTIL), name
    _strictly_increasing(nightly, months)
    return len(nightly) + len(months)


def compare_half_hours(name: str, since: datetime, until: datetime) -> int:
    """How many were compared."""
    half_hours = list(Schedule("*/30 * * * *", name).between(since, until))
    assert half_hours == list(zones.each_half_hour(ZoneInfo(name), since, until)), name
    _strictly_increasing(half_hours)
    return len(half_hours)


def _strictly_increasing(*lists: list[datetime]) -> None:
    for moments in lists:
        assert all(one < other for one, other in pairwise(moments))
