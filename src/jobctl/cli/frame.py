"""What `jobctl top` draws: facts, a width and a height in, lines out. No terminal, clock or SQL.

Whatever the size, no line is wider and there are not more of them. What is wrong keeps its place,
the tables share what is left: each as much as it needs, the longest gives way first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobctl.cli import overview, queues
from jobctl.cli.moments import coarse, since
from jobctl.cli.table import cut, paint, safe, table
from jobctl.store.reading import Row

SEVERITY_COLOURS = {"critical": "red", "warning": "yellow", "note": "yellow"}
_KEYS = "q quit   space now   + slower   - faster"
_MOST_TROUBLES = 4
_BAR = 10


@dataclass(frozen=True)
class Snapshot:
    """What was read at one moment. `flow`: events a second, by name; None the first time."""

    now: datetime
    facts: dict[str, Any]
    hosts: list[Row]
    longest: list[Row]
    flow: dict[str, float] | None = None


def frame(
    shot: Snapshot | None, width: int, height: int, *, every: float, error: str | None = None
) -> list[str]:
    """The lines of the screen."""
    lines = [paint(cut(_title(shot, every), width), "bold")]
    if error is not None:
        lines.append(paint(cut(safe(f"!! {error}"), width), "red"))
    footer = [paint(cut(_KEYS, width), "grey")]
    if shot is None:
        if error is None:
            lines.append(cut("Asking PostgreSQL ...", width))
    else:
        lines += _speed(shot, width) + _troubles(shot, width)
        lines += _tables(shot, width, height - len(lines) - len(footer))
    lines = lines[: max(0, height - len(footer))]
    lines += [""] * (height - len(lines) - len(footer))
    return (lines + footer)[:height]


def _title(shot: Snapshot | None, every: float) -> str:
    if shot is None:
        return "jobctl top"
    clock = shot.now.strftime("%H:%M:%S UTC")
    return f"jobctl top  {clock}, every {coarse(every)}  {overview.headline(shot.facts)}"


def _speed(shot: Snapshot, width: int) -> list[str]:
    if shot.flow is None:
        return [""]
    words = [f"{name} {_rate(speed)}/s" for name, speed in shot.flow.items()]
    return [cut("   ".join(words), width)]


def _rate(speed: float) -> str:
    return f"{speed:.1f}" if speed < 100 else f"{speed:.0f}"


def _troubles(shot: Snapshot, width: int) -> list[str]:
    found = overview.troubles(shot.facts)
    shown = found[: _MOST_TROUBLES if len(found) <= _MOST_TROUBLES else _MOST_TROUBLES - 1]
    lines = []
    for one in shown:
        mark = "!!" if one["severity"] == "critical" else "! "
        words = cut(safe(f"{mark} {one['trouble']}. {one['advice']}"), width)
        lines.append(paint(words, SEVERITY_COLOURS[one["severity"]]))
    if len(found) > len(shown):
        lines.append(cut(f"   and {len(found) - len(shown)} more: jobctl status", width))
    return lines


def _tables(shot: Snapshot, width: int, room: int) -> list[str]:
    """Each has a blank line, its titles and its rows."""
    tables = [_queues(shot), _hosts(shot), _longest(shot)]
    share = shares([len(rows) for _, rows in tables], room - 2 * len(tables))
    lines: list[str] = []
    for (titles, all_rows), most in zip(tables, share, strict=True):
        if not all_rows or most < 1:
            continue
        shown = all_rows[:most]
        if len(shown) < len(all_rows) and most > 1:
            more: list[object] = [f"and {len(all_rows) - most + 1} more"]
            shown = [*all_rows[: most - 1], more + [None] * (len(titles) - 1)]
        lines += ["", *table(titles, shown, room=width).split("\n")]
    return lines


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """How many rows each gets: all that it wants, or an even share of what the smaller leave."""
    given = [0] * len(wanted)
    left = max(0, room)
    for place, at in enumerate(sorted(range(len(wanted)), key=lambda at: wanted[at])):
        given[at] = min(wanted[at], left // (len(wanted) - place))
        left -= given[at]
    return given


_Table = tuple[Sequence[str], list[list[object]]]


def _queues(shot: Snapshot) -> _Table:
    titles = ("QUEUE", "STATE", "OLDEST", "QUEUED", "RUN", "SCHED", "RETRY", "BLOCK", "DEAD")
    # Who has waited for longest comes first, then whoever has most to do.
    ordered = sorted(
        shot.facts["queues"],
        key=lambda one: (-(one["age_seconds"] or 0.0), -one["running"], one["queue"]),
    )
    rows: list[list[object]] = [
        [cut(one["queue"], 24), one["state"], queues.age(one), *queues.counts(one)]
        for one in ordered
    ]
    return titles, rows


def _hosts(shot: Snapshot) -> _Table:
    titles = ("HOST", "STATE", "BUSY", "", "LEADS", "SEEN", "QUEUES")
    rows: list[list[object]] = [
        [
            cut(row["host"], 24),
            row["state"],
            f"{row['busy']}/{row['slots']}",
            _bar(row["busy"], row["slots"]),
            "yes" if row["leader"] else "",
            since(shot.now, row["renewed_at"]),
            "all" if row["queues"] is None else ",".join(row["queues"]),
        ]
        for row in shot.hosts
        if row["state"] != "dead"
    ]
    return titles, rows


def _longest(shot: Snapshot) -> _Table:
    titles = ("JOB", "TYPE", "WHERE", "FOR", "LEFT", "TRY", "PROGRESS")
    rows: list[list[object]] = []
    for row in shot.longest:
        slot = "?" if row["slot"] is None else row["slot"]
        rows.append(
            [
                f"#{row['id']}",
                cut(row["type"], 28),
                f"{cut(row['host'] or 'gone', 16)}:{slot}",
                since(shot.now, row["since"]),
                coarse(max(0.0, (row["deadline_at"] - shot.now).total_seconds())),
                str(row["attempt"]),
                "asked to stop" if row["cancel_requested"] else _progress(row["progress"]),
            ]
        )
    return titles, rows


def _progress(progress: Any) -> str:
    """A job's own words: strange ones are left out."""
    if not isinstance(progress, dict):
        return ""
    phase, done, total = (progress.get(name) for name in ("phase", "done", "total"))
    words = [str(phase)] if phase is not None else []
    if done is not None:
        words.append(str(done) if total is None else f"{done}/{total}")
    return " ".join(words)


def _bar(part: int, whole: int) -> str:
    full = round(_BAR * min(part, whole) / whole) if whole else 0
    return "[" + "#" * full + "." * (_BAR - full) + "]"
