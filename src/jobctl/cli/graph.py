"""What comes after what, drawn: one line a job, each below what it comes after.

A job that comes after several stands below the last of them, and its line names the others. Where
the terminal knows no more than ASCII, ASCII is drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jobctl.cli.output import Row
from jobctl.cli.table import STATE_COLOURS, paint, safe
from jobctl.store.reading import MOST_DRAWN


class Strokes(NamedTuple):
    """The pieces of a tree."""

    branch: str
    last: str
    down: str
    mark: str


UNICODE = Strokes("├─ ", "└─ ", "│  ", "◀ this job")
ASCII = Strokes("|- ", "`- ", "|  ", "<- this job")


def lines(nodes: Sequence[Row], job_id: int, strokes: Strokes | None = None) -> list[str]:
    """The drawing of what `reading.graph` returned; none for none."""
    known = {node["id"]: node for node in nodes}
    below: dict[int | None, list[int]] = {}
    for node in sorted(nodes, key=lambda one: one["id"]):
        below.setdefault(node["after"][-1] if node["after"] else None, []).append(node["id"])
    drawn = list(_tree(known, below, job_id, strokes or _strokes()))
    if len(nodes) >= MOST_DRAWN:
        drawn.append("... and perhaps more: SELECT * FROM jobctl.edges")
    return drawn


def _tree(
    known: Mapping[int, Row],
    below: Mapping[int | None, list[int]],
    job_id: int,
    strokes: Strokes,
) -> Iterator[str]:
    """Without recursion: a chain may be long."""
    roots = below.get(None, [])
    waiting = [(one, "", "", "") for one in reversed(roots)]
    while waiting:
        at, margin, stroke, further = waiting.pop()
        yield f"{margin}{stroke}{_line(known[at], job_id, strokes)}"
        children = below.get(at, [])
        inner = margin + further
        for child in reversed(children):
            last = child == children[-1]
            waiting.append(
                (child, inner, strokes.last if last else strokes.branch,
                 "   " if last else strokes.down)
            )  # fmt: skip


def _line(node: Row, job_id: int, strokes: Strokes) -> str:
    if node["state"] is None:
        words = [f"#{node['id']}", "forgotten"]
    else:
        colour = STATE_COLOURS.get(node["state"])
        words = [f"#{node['id']} {safe(node['type'])}", paint(node["state"], colour)]
        if node["key"] is not None:
            words.append(f"key {safe(node['key'])}")
        if node["failure_class"] and node["state"] != "succeeded":
            words.append(safe(node["failure_class"]))
    others = node["after"][:-1]
    if others:
        words.append(f"also after {_numbers(others)}")
    if node["cancelled_with"] and node["state"] == "blocked":
        words.append(f"cancelled with {_numbers(node['cancelled_with'])}")
    if node["stuck_because"]:
        words.append(f"stuck: {safe(node['stuck_because'])}")
    if node["id"] == job_id:
        words.append(paint(strokes.mark, "bold"))
    return "  ".join(words)


def _numbers(jobs: Sequence[int]) -> str:
    shown = ", ".join(f"#{job}" for job in jobs[:5])
    return shown if len(jobs) <= 5 else f"{shown} and {len(jobs) - 5} more"


def _strokes() -> Strokes:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "".join(UNICODE).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
