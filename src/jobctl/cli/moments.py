"""Times and durations as people type and read them.

What is typed names its zone or is counted back from now; what is printed in JSON is ISO-8601 in
UTC; what is printed for people is how long ago. "Now" is the database's, so that a laptop with a
wrong clock asks for the same hour as everybody else.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from jobctl.store.durations import format_duration, parse_duration


class Moment(click.ParamType[datetime | timedelta]):
    """A time with its zone, or a duration, which counts from now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse_duration(value)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is no time: write how long ago (15m, 2h, 7d) or a time such as "
                "2026-11-29T10:00Z",
                param,
                ctx,
            )
        if moment.tzinfo is None:
            self.fail(
                f"{value!r} does not say in which zone: add Z for UTC or an offset such as +07:00",
                param,
                ctx,
            )
        return moment


class Length(click.ParamType[float]):
    """A duration, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return parse_duration(value).total_seconds()
        except ValueError as error:
            self.fail(str(error), param, ctx)


MOMENT = Moment()
DURATION = Length()


def before(now: datetime, moment: datetime | timedelta | None) -> datetime | None:
    """The time that was meant by `Moment`."""
    return now - moment if isinstance(moment, timedelta) else moment


def iso(moment: datetime) -> str:
    """ISO-8601 in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def coarse(seconds: float) -> str:
    """A duration in at most two units: 850ms, 12s, 3m20s, 5h10m, 12d."""
    if seconds < 10:
        return format_duration(round(max(0.0, seconds), 1 if seconds >= 1 else 3))
    step = next(step for limit, step in _STEPS if seconds < limit)
    return format_duration(max(step, round(seconds / step) * step))


_STEPS = ((3600, 1), (86_400, 60), (10 * 86_400, 3600), (float("inf"), 86_400))


def since(now: datetime, moment: datetime | None) -> str:
    """How long ago that was, for a table; in the future, `in 5m`."""
    if moment is None:
        return ""
    seconds = (now - moment).total_seconds()
    return f"in {coarse(-seconds)}" if seconds < 0 else coarse(seconds)
