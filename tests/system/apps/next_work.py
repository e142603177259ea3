"""The next release: it knows a type more, and understands newer arguments."""

from __future__ import annotations

import jobctl


@jobctl.job
def from_the_next_release(ctx: jobctl.Context) -> None: ...


@jobctl.job(schema_version=7)
def add(ctx: jobctl.Context, a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}
