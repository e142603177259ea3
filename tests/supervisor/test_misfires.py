"""What is done about planned times that passed: nothing fresh is lost, nobody is flooded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobctl.store.cron_spec import CronSpec
from jobctl.supervisor.misfires import judge

NOW = datetime(2026, 11, 29, 12, 0, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def spec(schedule: str, **words: Any) -> CronSpec:
    return CronSpec(name="n", type="t", schedule=schedule, **words)


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_a_change_of_leader_costs_no_firing_whatever_the_policy(misfire: str) -> None:
    """Of a cron of every second that nobody looked at for 30 s, all fire."""
    todo = judge(spec("* * * * * *", misfire=misfire), NOW - timedelta(seconds=30), NOW)
    assert todo.moments == [NOW - timedelta(seconds=29 - at) for at in range(30)]
    assert (todo.missed, todo.too_late) == (0, None)
    assert todo.next_at == NOW + timedelta(seconds=1)


def test_after_hours_skip_fires_nothing_old() -> None:
    todo = judge(spec("15 * * * *", misfire="skip"), NOW - 5 * HOUR, NOW)
    assert (todo.moments, todo.missed) == ([], 5)
    assert todo.too_late == datetime(2026, 11, 29, 11, 15, tzinfo=UTC)


def test_after_hours_once_fires_the_last_one() -> None:
    todo = judge(spec("15 * * * *", misfire="once"), NOW - 5 * HOUR, NOW)
    assert todo.moments == [datetime(2026, 11, 29, 11, 15, tzinfo=UTC)]
    assert (todo.missed, todo.too_late) == (4, None)


def test_once_is_content_with_what_fires_anyway() -> None:
    """A cron of every minute: the newest is on time, so nothing old is added to it."""
    todo = judge(spec("* * * * *", misfire="once"), NOW - 3 * HOUR, NOW)
    assert todo.moments == [NOW.replace(second=0)]
    assert todo.missed == 179


def test_all_makes_up_for_the_newest_up_to_the_limit() -> None:
    todo = judge(spec("*/5 * * * *", misfire="all"), NOW - 2 * HOUR, NOW)
    assert len(todo.moments) == 24
    assert todo.missed == 0
    todo = judge(spec("*/5 * * * *", misfire="all", misfire_limit=10), NOW - 2 * HOUR, NOW)
    assert len(todo.moments) == 10
    assert todo.moments[-1] == NOW.replace(second=0)
    assert todo.missed == 14


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_nobody_is_flooded_after_a_year(misfire: str) -> None:
    """Every second, for a year: what fires is bounded, and working it out takes no time."""
    todo = judge(spec("* * * * * *", misfire=misfire), NOW - timedelta(days=365), NOW)
    assert len(todo.moments) <= 100
    assert todo.missed >= 900  # counted up to a bound


def test_nothing_is_planned_and_nothing_done() -> None:
    todo = judge(spec("0 3 * * *"), NOW - timedelta(minutes=5), NOW)
    assert (todo.moments, todo.missed, todo.too_late) == ([], 0, None)
    todo = judge(spec("* * * * * *"), NOW + HOUR, NOW)  # the database's clock was set back
    assert todo.moments == []
