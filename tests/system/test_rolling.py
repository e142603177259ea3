"""Deploys under load, in short; `make rolling` is the long form and measures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.system import rolling
from tests.system.load import Figures
from tests.system.rolling import Phase

FINE = Figures(
    jobs=100, lost=0, spent=0, interrupted=0, doubles=0, again=0, p50=0, p95=0, p99=0.1, worst=0.2
)


@pytest.mark.slow  # it waits for a lease to be over
@pytest.mark.timeout(300)
def test_hosts_are_deployed_one_after_the_other(database: str, tmp_path: Path) -> None:
    """Nothing is lost, nothing is spent, nobody waits for long; afterwards all run the new code."""
    phases = rolling.run(database, tmp_path, hosts=2, slots=6, rate=12, seconds=3)
    assert [phase.deploys > 0 for phase in phases] == [False, True, True]
    assert rolling.wrong(phases, most_added=10.0) == [], rolling.table(phases)


@pytest.mark.parametrize(
    ("what", "many"),
    [("lost", 1), ("spent", 1), ("interrupted", 1), ("doubles", 1), ("again", 1), ("p99", 1.1)],
)
def test_a_deploy_that_costs_something_is_found_out(what: str, many: float) -> None:
    """The guard of the verdict."""
    phases = [Phase("no deploy", 0, 1.0, FINE), Phase("reload", 1, 1.0, FINE)]
    assert rolling.wrong(phases) == []
    phases[1] = Phase("reload", 1, 1.0, replace(FINE, **{what: many}))  # type: ignore[arg-type]  # by name
    assert len(rolling.wrong(phases)) == 1
