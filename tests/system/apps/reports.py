"""A report of two files that belong together, written step by step."""

from __future__ import annotations

import os
from pathlib import Path

from promises import step  # type: ignore[import-not-found]  # a neighbour on PYTHONPATH

import jobctl
from jobctl import Retry

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])
QUICK = Retry(max_attempts=10, max_crashes=10, min_backoff="10ms", max_backoff="20ms")


@jobctl.job(retry=QUICK)
def report(ctx: jobctl.Context, number: int) -> str:
    step("begin")
    with ctx.publish(FOLDER / "report") as new:
        (new.path / "head").write_text(f"{number}")
        step("half")
        (new.path / "tail").write_text(f"{number}")
        step("whole")
    step("published")
    return new.version


@jobctl.job(retry=QUICK)
async def report_later(ctx: jobctl.Context, number: int) -> str:
    async with ctx.publish(FOLDER / "report") as new:
        (new.path / "head").write_text(f"{number}")
        (new.path / "tail").write_text(f"{number}")
    return new.version
