"""Handlers with next steps. They meet the test through files in its folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import jobctl

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])
EAGER = jobctl.Retry(max_attempts=10, min_backoff="0s", max_backoff="0s", max_crashes=10)


@jobctl.job(retry=EAGER)
def step(ctx: jobctl.Context, name: str = "") -> None:
    with (FOLDER / "ran").open("a") as file:
        file.write(f"{name}\n")


@jobctl.job(retry=EAGER)
def enqueues_and_dies(ctx: jobctl.Context, how: str) -> str:
    """The first attempt enqueues and does not succeed; the second does both."""
    first = step.enqueue(ctx, name="first")
    ctx.enqueue("step", {"name": "second"}, after=[first])
    if ctx.attempt == 1:
        if how == "raise":
            raise RuntimeError("not yet")
        if how == "exit":
            os._exit(1)
        (FOLDER / "enqueued").touch()
        time.sleep(600)  # until somebody kills it
    return "done"


@jobctl.job(retry=jobctl.Retry(max_attempts=1))
def enqueues_nonsense(ctx: jobctl.Context) -> None:
    ctx.enqueue("step", after=[999_999])


@jobctl.job(retry=EAGER)
def commits_with_steps(ctx: jobctl.Context, how: str) -> None:
    """In the transaction that is the success of this job; the first attempt rolls it back."""
    with ctx.transaction() as conn:
        conn.execute("SELECT 1")
        first = step.enqueue(ctx, name="first")
        ctx.enqueue("step", {"name": "second"}, after=[first])
        if how == "raise" and ctx.attempt == 1:
            raise RuntimeError("not yet")
        if how == "nonsense" and ctx.attempt == 1:
            ctx.enqueue("step", after=[999_999])
    try:
        ctx.enqueue("step", {"name": "late"})
    except RuntimeError:
        (FOLDER / "refused").touch()
    os._exit(1)  # whatever it does from here on, it has succeeded
