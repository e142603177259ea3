"""One delivery, with a stop at every boundary at which it can die."""

from __future__ import annotations

from typing import Any

from promises import QUICK, act, step  # type: ignore[import-not-found]  # a neighbour on PYTHONPATH

import jobctl


@jobctl.job(retry=QUICK)
def deliver(ctx: jobctl.Context, mode: Any, commit: bool = True) -> None:
    """The provider is a file with a line for each call."""
    step("started")
    with ctx.effect("parcel:7", mode=mode) as effect:
        if effect.todo:
            act("provider", ctx)
            step("acted")
    step("said")
    if not commit:
        return
    with ctx.transaction() as conn:
        conn.execute("INSERT INTO public.delivered (job) VALUES (%s)", (ctx.job_id,))
    step("committed")
