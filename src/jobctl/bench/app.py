"""The jobs that the benchmark runs."""

from __future__ import annotations

from time import monotonic_ns

import jobctl


@jobctl.job(queue="bench", timeout="30s")
def bench_noop(ctx: jobctl.Context, a: int = 0) -> None:
    """Nothing: what is left is the cost of the system itself."""


@jobctl.job(queue="bench", timeout="30s")
def bench_latency(ctx: jobctl.Context) -> dict[str, int]:
    """Says when it was started, on the clock that all processes of a machine share."""
    return {"started_ns": monotonic_ns()}
