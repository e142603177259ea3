"""The store against a model where jobs come after others; and the model against what is broken."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from jobctl.store.statements import sql
from tests.exploring import explore, find
from tests.store.steps_machine import StepsMachine


def test_what_comes_after_what_is_as_the_model_says(database: str) -> None:
    """Each child waits for those that it comes after, and for nobody else: it runs once, after all
    of them, or is cancelled with them, whatever is done in whatever order."""
    machine = type("Machine", (StepsMachine,), {"dsn": database})
    run_state_machine_as_test(machine, settings=explore(40, steps=40))


@pytest.mark.parametrize(
    ("statement", "guard", "without"),
    [
        ("settle_succeeded", "release_children(array_agg(e.parent))", "count(*)"),
        ("settle_ended", "cancel_children(array_agg(DISTINCT d.parent))", "count(*)"),
        ("settle_ended", "AND d.on_dead = 'cancel' AND d.met_at IS NULL", "AND false"),
    ],
    ids=["released", "cancelled", "asked"],
)
def test_children_that_nobody_lets_go_are_noticed(
    database: str, statement: str, guard: str, without: str
) -> None:
    """A settle that forgets what comes after its jobs."""
    assert guard in sql(statement)
    broken = sql(statement).replace(guard, without)

    class Broken(StepsMachine):
        dsn = database
        altered = {statement: broken}  # noqa: RUF012

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Broken, settings=find(300))
