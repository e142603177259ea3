"""An ordinary day: the jobs of `busy`, and crons that fire every second."""

from __future__ import annotations

import time

import busy  # type: ignore[import-not-found]  # a neighbour on PYTHONPATH, as apps have them

import jobctl


@jobctl.cron("* * * * * *")
@jobctl.job(timeout="10s", retry=busy.QUICK)
def count(ctx: jobctl.Context) -> None:
    time.sleep(0.02)


@jobctl.cron("* * * * * *")
@jobctl.job(timeout="10s", retry=busy.QUICK)
def sweep(ctx: jobctl.Context) -> None:
    time.sleep(0.1)
