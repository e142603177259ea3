"""How an event looks as a line: for people, as logfmt, as JSON. Pure text, no stream.

A line is a line: what a stranger wrote into a field cannot begin another one, and in a terminal's
text it cannot move the cursor.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

LEVEL_NAMES = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "critical",
}
#: Fields that the sentence says whole, or that are there for the text alone.
_SAID = frozenset({"line", "extra"})
_PLAIN = re.compile(r"[^\s\"=\\]+")


@dataclass(frozen=True, slots=True)
class Entry:
    """One event on its way into the log."""

    moment: datetime
    level: int
    event: str
    sentence: str
    fields: Mapping[str, Any]

    @property
    def known(self) -> dict[str, Any]:
        """The fields that have a value, what the application gave as `extra` among them."""
        found = {
            name: value
            for name, value in self.fields.items()
            if value is not None and name not in _SAID
        }
        extra = self.fields.get("extra") or {}
        return {**{f"extra_{name}": value for name, value in extra.items()}, **found}


Shape = Callable[[Entry], str]


def as_text(entry: Entry) -> str:
    """For a person at a terminal. An event of an application begins with whose it is."""
    where = ""
    if entry.event in ("output", "logged"):
        slot, job = entry.fields.get("slot"), entry.fields.get("job")
        where = "[app] " if slot is None else f"[slot {slot}] "
        where = where if job is None else f"[slot {slot} job {job}] "
        if logger := entry.fields.get("logger"):
            where += f"{logger}: "
    words = _tame(where + entry.sentence)
    return f"{_iso(entry.moment)} {LEVEL_NAMES[entry.level]:7} {words}"


def as_logfmt(entry: Entry) -> str:
    """`key=value` with quotes where they are needed, the sentence last."""
    pairs = {
        "time": _iso(entry.moment), "level": LEVEL_NAMES[entry.level], "event": entry.event,
        **entry.known, "message": entry.sentence,
    }  # fmt: skip
    return " ".join(f"{name}={_quoted(value)}" for name, value in pairs.items())


def as_json(entry: Entry) -> str:
    """One object."""
    line = {
        **entry.known, "time": _iso(entry.moment), "level": LEVEL_NAMES[entry.level],
        "event": entry.event, "message": entry.sentence,
    }  # fmt: skip
    return json.dumps(line, default=str, ensure_ascii=True)


def _iso(moment: datetime) -> str:
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _tame(text: str) -> str:
    """Written out what a terminal would obey; lines of a stack stay lines."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) and text.isprintable() else json.dumps(text)


SHAPES: Mapping[str, Shape] = {"text": as_text, "logfmt": as_logfmt, "json": as_json}
