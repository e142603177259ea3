"""What an application logged, as its slot has sent it: taken out of a line of output.

It comes from a stranger: whoever prints the mark can write whatever they like behind it, and what
that amounts to is a line in the log about their own job.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

from jobctl.workerproc.records import MARK

#: The levels that the log knows, the highest first; others count as the next below.
_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


@dataclass(frozen=True)
class AppRecord:
    """One record of Python's logging."""

    level: int
    logger: str
    message: str
    extra: dict[str, Any] = field(default_factory=dict)


def split(line: str) -> tuple[str, AppRecord | None]:
    """What was printed before it, and the record. A line without one is all printed."""
    before, mark, text = line.partition(MARK)
    if not mark:
        return line, None
    try:
        body = json.loads(text)
        level = int(body["level"])
        record = AppRecord(
            next((one for one in _LEVELS if level >= one), logging.DEBUG),
            str(body["logger"]),
            str(body["message"]),
            _plain(body.get("extra")),
        )
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return line, None
    return before, record


def _plain(extra: object) -> dict[str, Any]:
    if not isinstance(extra, dict):
        return {}
    return {
        name: value for name, value in extra.items() if isinstance(value, str | int | float | bool)
    }
