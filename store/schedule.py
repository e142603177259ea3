"""When a cron fires: an expression, a zone, and the moments that they mean. Arithmetic only.

Five fields, or six with seconds first; the names of `ALIASES` stand for five. What the clocks'
changes do is what Debian's cron does: a fixed time that the spring skips fires once when the gap
ends, one that the autumn repeats fires the first time only; with a `*` in the minutes or the hours,
or with seconds, what counts is the time that has passed, so nothing is skipped and the repeated
hour fires again. The moments are in UTC and strictly later each than the one before, whatever
moment the question starts from: two hosts that ask from different ones get the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
#: Names that mean something else on every machine.
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})
_FIELDS = (
    "minute, hour, day of the month, month, day of the week, and if wanted seconds before them"
)
_ANY_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
#: No moment is looked for beyond this.
_LAST = datetime(2190, 1, 1, tzinfo=UTC)
#: How far the first look back for the newest moments goes, and how much further each next one.
_LOOK_BACK, _LOOK_FURTHER = timedelta(seconds=60), 4


@dataclass(frozen=True, slots=True)
class Schedule:
    """Raises ValueError, with what is wrong, for an expression or a zone that does not exist."""

    expression: str
    tz: str = "UTC"

    def __post_init__(self) -> None:
        fields = five_fields(self.expression)
        zone(self.tz)
        try:
            CronSim(fields, _ANY_MOMENT)
        except CronSimError as error:
            raise ValueError(
                f"{self.expression!r} is no cron expression: {str(error).lower()}. It has {_FIELDS}"
            ) from None
        if self.next(_ANY_MOMENT) is None:
            raise ValueError(f"{self.expression!r} never fires: there is no such day")

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The moments later than this one, in order, in UTC."""
        last = moment
        # cronsim goes by the wall's time, so in a repeated hour its first answers may be earlier.
        for found in CronSim(five_fields(self.expression), moment.astimezone(zone(self.tz))):
            here = found.astimezone(UTC)
            if here >= _LAST:
                return
            if here > last:
                last = here
                yield here

    def next(self, moment: datetime) -> datetime | None:
        """The first moment later than this one; None if there will be none."""
        return next(self.after(moment), None)

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The moments later than `after` and not later than `until`."""
        for moment in self.after(after):
            if moment > until:
                return
            yield moment

    def latest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """Of `between` the last `most`, in order, without counting through all the others."""
        enough = 4 * most
        too_short, too_long, length = timedelta(0), timedelta(0), _LOOK_BACK
        while True:
            begin = max(after, until - length)
            found = list(islice(self.between(begin, until), enough + 1))
            if most <= len(found) <= enough or (begin == after and len(found) < most):
                return found[-most:]
            if len(found) < most:
                too_short = length
            else:
                too_long = length
            length = (too_short + too_long) / 2 if too_long else length * _LOOK_FURTHER

    def in_words(self) -> str:
        """What a person calls it, without the zone."""
        words: str = CronSim(five_fields(self.expression), _ANY_MOMENT).explain()
        return words


def five_fields(expression: str) -> str:
    """The expression without aliases and spare blanks. Raises ValueError for no expression."""
    words = expression.split()
    if len(words) == 1 and words[0].startswith("@"):
        known = ALIASES.get(words[0].lower())
        if known is None:
            if words[0].lower() == "@reboot":
                raise ValueError(
                    "'@reboot' is no moment: enqueue the job from what starts the application"
                )
            raise ValueError(f"there is no {expression!r}; there are {', '.join(ALIASES)}")
        return known
    if len(words) not in (5, 6):
        raise ValueError(
            f"{expression!r} is no cron expression: it has {len(words)} fields, not 5 or 6. They "
            f"are {_FIELDS}"
        )
    return " ".join(words)


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """The IANA zone of this name. Raises ValueError."""
    try:
        if name in _NO_ZONES:
            raise ValueError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        close = difflib.get_close_matches(name, sorted(available_timezones() - _NO_ZONES), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"there is no time zone {name!r}, such as Europe/Berlin or UTC{hint}"
        ) from None
