"""Durations as people type them: `timedelta`, seconds, or text such as `90s`, `1h30m`, `7d`.

One reading for decorators, enqueue, settings and the command line. What is refused is refused with
a sentence; nothing is rounded, guessed or wrapped around.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction

Duration = str | int | float | timedelta

#: A century and its leap days: longer than any job waits, shorter than what dates overflow at.
LONGEST = timedelta(days=36_525)

_SECONDS = {
    "w": Fraction(7 * 86_400),
    "d": Fraction(86_400),
    "h": Fraction(3_600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1_000),
}
_PART = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(ms|[wdhms])\s*", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_HOW = "write seconds or text such as 500ms, 90s, 15m, 1h30m, 2h, 7d"


def parse_duration(value: Duration) -> timedelta:
    """The duration that `value` means. A bare number, in text too, counts seconds.

    Raises ValueError for everything else: negative, NaN, infinite, more than 100 years, a unit
    that is unknown, a type that is not one of the four.
    """
    if isinstance(value, timedelta):
        return _bounded(value, value)
    if isinstance(value, str):
        return _parse_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a duration: {_HOW}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is not a duration: it must be a finite number of seconds")
    if abs(value) > LONGEST.total_seconds():
        # Before it becomes a timedelta, which overflows with a message about C integers.
        raise ValueError(_out_of_range(value))
    return _bounded(timedelta(seconds=value), value)


def format_duration(seconds: float | timedelta) -> str:
    """The shortest text that reads back as the same duration: `250ms`, `1.5s`, `1h30m`, `7d`.

    Exact to the millisecond below a minute and to the second above; negative ones get a sign.
    """
    value = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else "forever"
    sign = "-" if value < 0 else ""
    milliseconds = round(abs(value) * 1_000)
    if milliseconds < 1_000:
        return f"{sign}{milliseconds}ms" if milliseconds else "0s"
    if milliseconds < 60_000:
        return f"{sign}{milliseconds / 1_000:g}s"
    left = round(abs(value))
    parts = [sign]
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _parse_text(text: str) -> timedelta:
    trimmed = text.strip()
    if _NUMBER.fullmatch(trimmed):
        return _from_seconds(Fraction(trimmed), text)
    total = Fraction(0)
    at = 0
    while at < len(trimmed):
        part = _PART.match(trimmed, at)
        if part is None:
            raise ValueError(_unreadable(text))
        total += Fraction(part[1]) * _SECONDS[part[2].lower()]
        at = part.end()
    if not trimmed:
        raise ValueError(_unreadable(text))
    return _from_seconds(total, text)


def _from_seconds(seconds: Fraction, given: str) -> timedelta:
    if seconds > LONGEST.total_seconds():
        raise ValueError(_out_of_range(given))
    return timedelta(microseconds=round(seconds * 1_000_000))


def _bounded(duration: timedelta, given: object) -> timedelta:
    if not timedelta(0) <= duration <= LONGEST:
        raise ValueError(_out_of_range(given))
    return duration


def _out_of_range(given: object) -> str:
    shown = _short(given)
    return f"{shown} is out of range for a duration: it must be between 0 and 100 years"


def _unreadable(text: str) -> str:
    return f"{_short(text)} is not a duration: {_HOW}"


def _short(given: object) -> str:
    if isinstance(given, int) and given.bit_length() > 128:
        return "this number"  # int() to text is refused by Python above some thousand digits
    shown = repr(given)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
