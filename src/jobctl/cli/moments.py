"""Times and durations as people type and read them.

What is typed names its zone or is counted back from now; what is printed in JSON is ISO-8601 in
UTC; what is printed for people is how long ago. "Now" is the database's, so that a laptop with a
wrong clock asks for the same hour as everybody else.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from jobctl.store.durations import parse_duration
from jobctl.store.spoken import coarse, iso, since

__all__ = ["DURATION", "FUTURE", "MOMENT", "Length", "Moment", "before", "coarse", "iso", "since"]


class Moment(click.ParamType[datetime | timedelta]):
    """A time with its zone; where it is `past`, a duration too, which counts back from now."""

    name = "time"

    def __init__(self, *, past: bool) -> None:
        self._past = past
        self._or = ", or how long ago: 15m, 2h, 7d" if past else "; a duration goes with --delay"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if self._past:
            try:
                return parse_duration(value)
            except ValueError:
                pass
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is no time: write a time such as 2026-11-29T10:00Z{self._or}",
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


MOMENT = Moment(past=True)
FUTURE = Moment(past=False)
DURATION = Length()


def before(now: datetime, moment: datetime | timedelta | None) -> datetime | None:
    """The time that was meant by `Moment`."""
    return now - moment if isinstance(moment, timedelta) else moment
