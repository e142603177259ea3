"""A table in plain text, and what makes text safe to show.

What jobs carry is written by strangers: an escape sequence in an error must not reach a terminal.
Columns are as wide as their widest cell; on a terminal the last one gives way to the window.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Sequence

GAP = "  "
LEAST_LAST = 12  # the last column is not cut below this

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "grey": "90", "bold": "1"}

#: How a state looks; the word itself is always there.
STATE_COLOURS = {
    "running": "blue",
    "succeeded": "green",
    "retrying": "yellow",
    "dead": "red",
    "silent": "red",
    "draining": "yellow",
    "paused": "yellow",
    "unserved": "red",
    "drained": "yellow",
    "working": "green",
}


def safe(text: str) -> str:
    """The text on one line, with everything that a terminal would obey written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def safe_lines(text: str) -> list[str]:
    """The lines of a longer text, each of them safe."""
    return [safe(line.expandtabs()) for line in text.splitlines()]


def width(text: str) -> int:
    """How many columns of a terminal it takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def cut(text: str, room: int) -> str:
    """The text, or as much of it as fits before an ellipsis."""
    if width(text) <= room:
        return text
    if room < 1:
        return ""
    kept = ""
    for character in text:
        if width(kept + character) > room - 1:
            break
        kept += character
    return kept + "…"


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    indent: str = "",
    room: int | None = None,
) -> str:
    """Rows under titles. Numbers stand to the right. No line is wider than `room`, if it is given;
    else on a terminal the last column gives way to the window, down to a bound."""
    cells = [["" if cell is None else safe(str(cell)) for cell in row] for row in rows]
    widths = [
        max([width(title), *(width(row[at]) for row in cells)]) for at, title in enumerate(titles)
    ]
    if room is not None:
        _fit(widths, room - len(indent))
    elif is_terminal():
        taken = len(indent) + sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
        left = shutil.get_terminal_size().columns - taken
        widths[-1] = min(widths[-1], max(LEAST_LAST, left))
    numeric = [
        bool(rows) and all(isinstance(row[at], int | float | None) for row in rows)
        for at in range(len(titles))
    ]
    lines = [_line(list(titles), widths, numeric, indent, "bold")]
    lines += [_line(row, widths, numeric, indent) for row in cells]
    return "\n".join(lines)


def _fit(widths: list[int], room: int) -> None:
    """The last column gives way first, then the one before it."""
    for at in range(len(widths) - 1, -1, -1):
        over = sum(widths) + len(GAP) * (len(widths) - 1) - room
        widths[at] -= max(0, min(over, widths[at]))


def paint(text: str, colour: str | None) -> str:
    """The text in a colour, where colours are wanted."""
    if colour is None or not text or not _wants_colour():
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def is_terminal() -> bool:
    """Whether a person looks at the output."""
    return sys.stdout.isatty()


def _line(
    cells: Sequence[str],
    widths: Sequence[int],
    numeric: Sequence[bool],
    indent: str,
    colour: str | None = None,
) -> str:
    parts = []
    for at, cell in enumerate(cells):
        text = cut(cell, widths[at])
        padding = " " * (widths[at] - width(text))
        painted = paint(text, colour or STATE_COLOURS.get(cell))
        last = at == len(cells) - 1
        parts.append(padding + painted if numeric[at] else painted + ("" if last else padding))
    return (indent + GAP.join(parts)).rstrip()


def _wants_colour() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
