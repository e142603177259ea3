"""When a server wants to be asked again: Retry-After as it is sent, and as people write it.

The header is seconds or an HTTP date (RFC 9110, 10.2.3), and comes from strangers: what is past
means now, what is absurd has a bound, what cannot be read is a ValueError. A date is compared with
the Date of the same response where that is known, so that nobody's clock has to be right.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from jobctl.store.durations import Duration, parse_duration

#: No server is waited for any longer.
LONGEST_RETRY_AFTER = 30 * 86_400.0
_LONGEST_TEXT = 200


def retry_after_seconds(
    delay: Duration | datetime | None, sent: str | datetime | None = None
) -> float | None:
    """Seconds from now, not bounded above; None when nothing was said. Raises ValueError."""
    match delay:
        case None:
            return None
        case bool():
            raise ValueError(f"{delay} is not a duration")
        case datetime():
            return _until(delay, sent)
        case timedelta():
            return max(0.0, delay.total_seconds())
        case int() | float():
            return _number(delay)
        case str() if len(delay) <= _LONGEST_TEXT:
            return _text(delay.strip(), sent)
        case str():
            raise ValueError(f"{delay[:60]!r}... is neither a duration nor an HTTP date")
        case _:
            raise ValueError(f"{type(delay).__name__} is neither a duration nor a date")


def _text(text: str, sent: str | datetime | None) -> float:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal():
        return _number(-1 if text.startswith("-") else int(digits))
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        moment = _http_date(text)
        if moment is None:
            raise ValueError(f"{error}; nor is it an HTTP date") from None
    return _until(moment, sent)


def _number(seconds: float) -> float:
    if isinstance(seconds, float) and math.isnan(seconds):
        raise ValueError("nan is not a duration: it must be a number of seconds")
    if seconds >= LONGEST_RETRY_AFTER:  # an int may be larger than any float
        return float(min(seconds, 1e18))
    return float(max(seconds, 0))


def _until(moment: datetime, sent: str | datetime | None) -> float:
    if moment.utcoffset() is None:
        raise ValueError(
            f"{moment.isoformat()} has no time zone, so it is not a moment: use datetime.now(UTC) "
            "+ timedelta(...), or value.astimezone()"
        )
    now = _http_date(sent) if isinstance(sent, str) else sent
    if now is None or now.utcoffset() is None:
        now = datetime.now(UTC)  # what a server sent wrong is as good as nothing
    return max(0.0, (moment - now).total_seconds())


def _http_date(text: str) -> datetime | None:
    """The date of RFC 9110's three forms; without a zone it is UTC, as they all are."""
    if len(text) > _LONGEST_TEXT:
        return None
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):  # it parses strangers' mail
        return None
