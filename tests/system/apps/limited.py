"""Handlers that say when they began and ended, on the clock that all processes share."""

from __future__ import annotations

import os
import time
from pathlib import Path
from time import monotonic

import jobctl
from jobctl import Retry

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])
QUICK = Retry(max_attempts=10, min_backoff="10ms", max_backoff="20ms")


def note(ctx: jobctl.Context, began: float, ended: float) -> None:
    with (FOLDER / "times").open("a") as file:
        file.write(f"{ctx.job_id} {began!r} {ended!r}\n")


@jobctl.job(retry=QUICK, limit="partner")
def call_partner(ctx: jobctl.Context, seconds: float = 0.0) -> None:
    began = monotonic()
    time.sleep(seconds)
    note(ctx, began, monotonic())


@jobctl.job(retry=QUICK, limit="partner")
def too_many_requests(ctx: jobctl.Context) -> None:
    if ctx.attempt == 1:
        raise jobctl.RetryAfter("2s", hold_limit=True)
    note(ctx, monotonic(), monotonic())


@jobctl.job(retry=QUICK)
def sleep_a_little(ctx: jobctl.Context) -> None:
    time.sleep(0.1)
