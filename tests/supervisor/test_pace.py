"""How much is claimed ahead: enough while jobs are short, nothing that would strand one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobctl.supervisor.pace import MEASURED, RESERVE_SECONDS, SHORTEST_SECONDS, Pace
from tests.exploring import explore

MOST = 64
NOW = 10**12
MILLISECOND = 10**6


def measured(pace: Pace, type_: str, seconds: float) -> None:
    for _ in range(MEASURED):
        pace.ran(type_, seconds)


def test_nothing_is_held_for_types_that_nobody_has_measured() -> None:
    pace = Pace(MOST)
    pace.given(1, "new", NOW)
    assert pace.reserve(NOW) == 0
    for _ in range(MEASURED - 1):
        pace.ran("new", 0.001)
    assert pace.reserve(NOW) == 0
    pace.ran("new", 0.001)
    assert pace.reserve(NOW) == 20


def test_nothing_is_held_for_long_types() -> None:
    pace = Pace(MOST)
    measured(pace, "long", RESERVE_SECONDS)
    pace.given(1, "long", NOW)
    assert pace.reserve(NOW) == 0
    assert pace.low_water == 0


def test_each_slot_adds_the_work_of_twenty_milliseconds() -> None:
    pace = Pace(MOST)
    measured(pace, "short", 0.002)
    measured(pace, "long", 60.0)
    pace.given(1, "short", NOW)
    pace.given(2, "short", NOW)
    pace.given(3, "long", NOW)
    assert pace.reserve(NOW) == 20
    assert pace.low_water == 10


def test_a_slot_whose_job_turns_out_to_be_long_adds_nothing() -> None:
    """What it was given last says nothing once that has lasted longer than the reserve."""
    pace = Pace(MOST)
    measured(pace, "short", 0.002)
    pace.given(1, "short", NOW)
    assert pace.reserve(NOW + 19 * MILLISECOND) == 10
    assert pace.reserve(NOW + 20 * MILLISECOND) == 0


def test_a_sudden_long_one_is_believed_at_once_and_forgotten_slowly() -> None:
    pace = Pace(MOST)
    measured(pace, "mixed", 0.001)
    pace.ran("mixed", 5.0)
    pace.given(1, "mixed", NOW)
    assert pace.reserve(NOW) == 0
    runs = 0
    while pace.reserve(NOW) == 0:
        pace.ran("mixed", 0.001)
        runs += 1
    assert 10 < runs < 200


def test_after_a_stranded_job_nothing_is_kept_for_a_while() -> None:
    """Where short and long jobs come mixed, the same jobs would go back and forth for ever."""
    pace = Pace(MOST)
    for _ in range(10):
        pace.ran("short", 0.001)
    pace.given(1, "short", NOW)
    assert pace.reserve(NOW) > 0
    pace.stranded(NOW)
    later = NOW + 999 * MILLISECOND
    pace.given(1, "short", later)
    assert (pace.reserve(later), pace.low_water) == (0, 0)
    later += 2 * MILLISECOND
    pace.given(1, "short", later)
    assert pace.reserve(later) > 0


@explore(100)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.floats(0, 100), st.integers(0, 50)),
        max_size=60,
    ),
    st.integers(0, MOST),
)
def test_the_reserve_stays_within_its_bounds(
    story: list[tuple[str, int, float, int]], most: int
) -> None:
    """Whatever ran for however long, in whatever slot."""
    pace = Pace(most)
    now = NOW
    for type_, slot, seconds, passed in story:
        now += passed * MILLISECOND
        pace.given(slot, type_, now)
        pace.ran(type_, seconds)
        reserve = pace.reserve(now)
        assert 0 <= pace.low_water <= reserve <= most
        assert reserve <= 10 * RESERVE_SECONDS / SHORTEST_SECONDS
