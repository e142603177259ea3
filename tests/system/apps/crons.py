"""Crons for the tests: every second, with each policy that matters there."""

from __future__ import annotations

import jobctl


@jobctl.cron("* * * * * *", misfire="all")
@jobctl.job
def tick(ctx: jobctl.Context) -> None: ...


@jobctl.cron("* * * * * *", misfire="skip", jitter="300ms")
@jobctl.job
def tock(ctx: jobctl.Context) -> None: ...


@jobctl.cron("0 3 * * *", tz="Asia/Ho_Chi_Minh")
@jobctl.job
def nightly(ctx: jobctl.Context) -> None: ...
