"""The table of transitions and the words are whole."""

from __future__ import annotations

import inspect

from jobctl.store import states
from jobctl.store.states import TRANSITIONS, Outcome, State, may_follow


def test_every_state_is_reached_and_left() -> None:
    """Everything but the end leads on, and nothing leads out of the end."""
    assert {step.target for step in TRANSITIONS} == set(State)
    left = {step.source for step in TRANSITIONS if step.source}
    assert left == {state for state in State if not state.is_final}


def test_no_way_is_told_twice() -> None:
    """One row a way."""
    ways = [(step.source, step.target) for step in TRANSITIONS]
    assert len(ways) == len(set(ways))


def test_every_state_is_explained_where_it_is_born() -> None:
    """A paragraph a state, and the picture names them all."""
    source = inspect.getsource(State)
    for state in State:
        assert f'{state.name} = "{state.value}"\n    """' in source
        assert state.value in (states.__doc__ or "")


def test_what_cannot_happen() -> None:
    """A dead job is not cancelled, and success is for ever."""
    assert not may_follow(State.DEAD, State.CANCELLED)
    assert not any(may_follow(State.SUCCEEDED, state) for state in State)
    assert may_follow(None, State.QUEUED)
    assert not may_follow(None, State.RUNNING)


def test_what_an_outcome_costs() -> None:
    """Snoozed and interrupted attempts are given back; deaths count twice."""
    assert {one for one in Outcome if not one.spends_attempt} == {
        Outcome.SNOOZED,
        Outcome.INTERRUPTED,
    }
    assert {one for one in Outcome if one.counts_as_crash} == {Outcome.CRASHED, Outcome.LOST}
