"""What a scrape costs, in figures: `python -m tests.grafana.scrape [TYPES]`.

The longest piece is what a scrape can delay the supervision loop by.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter

from jobctl.supervisor.metrics import Metrics
from tests.exposed import new_metrics
from tests.supervisor.test_metrics import _type

TIMES = 20


def measure(types: int) -> dict[str, float]:
    """With so many job types in 20 queues, all of which have run, and a tenth of them since."""
    known = [_type(f"type-{number}", f"queue-{number % 20}") for number in range(types)]
    metrics = new_metrics(known)
    _run(metrics, types)
    first = _scrape(metrics)
    rest = []
    for _ in range(TIMES):
        _run(metrics, types // 10)
        rest.append(_scrape(metrics))
    total, longest, size, lines = (min(each) for each in zip(*rest, strict=True))
    return {
        "types": types,
        "first_ms": round(first[0] * 1e3, 1),
        "ms": round(total * 1e3, 1),
        "longest_piece_ms": round(longest * 1e3, 2),
        "bytes": size,
        "lines": lines,
    }


def _run(metrics: Metrics, types: int) -> None:
    for number in range(types):
        series = metrics.of(f"queue-{number % 20}", f"type-{number}")
        series.claimed(0.01)
        series.started(0.001)
        series.ended("succeeded", 0.25)
        series.finished("succeeded", 1, 0.3)


def _scrape(metrics: Metrics) -> tuple[float, float, int, int]:
    begun = last = perf_counter()
    longest, size, lines = 0.0, 0, 0
    for piece in metrics.expose():
        now = perf_counter()
        longest, last = max(longest, now - last), now
        size += len(piece)
        lines += piece.count(b"\n")
    return perf_counter() - begun, longest, size, lines


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if sys.argv[1:] else 500)))  # noqa: T201 - its purpose
