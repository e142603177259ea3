"""Times as people read them: how long, how long ago, and in UTC when exactly."""

from __future__ import annotations

from datetime import UTC, datetime

from jobctl.store.durations import format_duration

_STEPS = ((3600, 1), (86_400, 60), (10 * 86_400, 3600), (float("inf"), 86_400))


def iso(moment: datetime) -> str:
    """ISO-8601 in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def coarse(seconds: float) -> str:
    """A duration in at most two units: 850ms, 12s, 3m20s, 5h10m, 12d."""
    if seconds < 10:
        return format_duration(round(max(0.0, seconds), 1 if seconds >= 1 else 3))
    step = next(step for limit, step in _STEPS if seconds < limit)
    return format_duration(max(step, round(seconds / step) * step))


def since(now: datetime, moment: datetime | None) -> str:
    """How long ago that was, for a table; in the future, `in 5m`."""
    if moment is None:
        return ""
    seconds = (now - moment).total_seconds()
    return f"in {coarse(-seconds)}" if seconds < 0 else coarse(seconds)
