"""The wait before the next attempt, for every number of failures, against a slow reading of the
same rule in exact fractions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from jobctl.store.backoff import JITTER, backoff_seconds
from jobctl.store.job_type import MOST_DOUBLINGS
from tests.exploring import explore

#: From nothing to the hundred years that a declaration may say, to the microsecond.
SECONDS = st.integers(0, 100 * 365 * 86_400 * 10**6).map(lambda us: us / 1e6)
BOUNDS = st.tuples(SECONDS, SECONDS).map(sorted)
DOUBLINGS = st.integers(0, MOST_DOUBLINGS)
#: Few, where the shape is; as many as a column holds; and any number at all.
FAILURES = st.one_of(st.integers(1, 200), st.integers(1, 2_000_000_000), st.integers(1, 10**400))
CHANCE = st.floats(0, 1, exclude_max=True)


def waits(least: Fraction, most: Fraction, doublings: int) -> Iterator[Fraction]:
    """The rule as a person would follow it: one wait after the other."""
    wait = least
    for _ in range(doublings):
        yield min(wait, most)
        wait = wait * 2
    step = wait
    while True:
        yield min(wait, most)
        wait = wait + step


def full(least: float, most: float, doublings: int, failures: int) -> float:
    return backoff_seconds(least, most, doublings, failures, chance=lambda: 1.0)


@explore(300)
@given(BOUNDS, DOUBLINGS)
def test_it_is_what_a_person_would_count(bounds: list[float], doublings: int) -> None:
    """Wait by wait, in fractions that round nothing."""
    least, most = bounds
    expected = waits(Fraction(least), Fraction(most), doublings)
    for failures, wait in enumerate(islice(expected, 150), start=1):
        assert abs(full(least, most, doublings, failures) - float(wait)) <= 1e-9 * float(wait)


@explore(300)
@given(BOUNDS, DOUBLINGS, FAILURES, FAILURES)
def test_it_never_falls_and_never_passes_its_bounds(
    bounds: list[float], doublings: int, one: int, other: int
) -> None:
    """For any two numbers of failures, however large: no overflow, nothing negative."""
    least, most = bounds
    fewer, more = sorted((one, other))
    earlier, later = (full(least, most, doublings, number) for number in (fewer, more))
    assert 0 <= least <= earlier <= later <= most


@explore(300)
@given(BOUNDS, DOUBLINGS, FAILURES)
def test_it_reaches_its_bound(bounds: list[float], doublings: int, failures: int) -> None:
    """Enough failures lead to `most`, unless there is nothing to grow from."""
    least, most = bounds
    assert full(least, most, doublings, 10**400) == (most if least else 0.0)
    # And it stays there.
    if full(least, most, doublings, failures) == most:
        assert full(least, most, doublings, failures + 1) == most


@explore(300)
@given(BOUNDS, DOUBLINGS, FAILURES, CHANCE)
def test_chance_takes_a_fifth_at_most(
    bounds: list[float], doublings: int, failures: int, chance: float
) -> None:
    """A wait is spread below its full length, and never above it."""
    least, most = bounds
    whole = full(least, most, doublings, failures)
    wait = backoff_seconds(least, most, doublings, failures, chance=lambda: chance)
    assert whole * (1 - JITTER) * (1 - 1e-9) <= wait <= whole


def test_chance_is_used() -> None:
    """Jobs that failed in one moment do not come back in one."""
    spread = {backoff_seconds(100.0, 100.0, 0, 1) for _ in range(200)}
    assert len(spread) > 100
    assert 80.0 <= min(spread) < 85.0
    assert 95.0 < max(spread) <= 100.0


def test_failures_that_were_never_counted() -> None:
    """A row that somebody wrote by hand waits as after its first failure."""
    assert full(10.0, 60.0, 3, 0) == full(10.0, 60.0, 3, -5) == 10.0
