"""How far the property tests explore: JOBCTL_TEST_SOAK=20 makes them twenty times as thorough."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, Verbosity, settings

SOAK = int(os.environ.get("JOBCTL_TEST_SOAK", "1"))


def explore(examples: int, steps: int = 50) -> settings:
    """So many examples, the same ones at every run; new ones when soaking.

    Nothing is kept between runs and no example has a deadline: the machine is shared.
    """
    return settings(
        max_examples=examples * SOAK,
        stateful_step_count=steps,
        derandomize=SOAK == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def find(examples: int, steps: int = 40) -> settings:
    """For a control, which only has to fail: the same examples always, and the first that fails
    will do, however large it is."""
    return settings(
        explore(examples, steps),
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        print_blob=False,
    )
