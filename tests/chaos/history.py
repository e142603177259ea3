"""What an actor did, in a file of its own that only grows.

The clock is the machine's monotonic one, which all processes on it share. One write a line, so that
a kill -9 leaves whole lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple


class Event(NamedTuple):
    """One line. `facts` depend on `op`."""

    at: float
    actor: str
    op: str
    facts: dict[str, Any]


class History:
    """The file of one actor. Every process opens its own."""

    def __init__(self, folder: Path, actor: str) -> None:
        self._actor = actor
        path = folder / f"{actor}-{os.getpid()}.history"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(self, op: str, **facts: Any) -> None:
        line = json.dumps([monotonic(), self._actor, op, facts])
        os.write(self._file, line.encode() + b"\n")


def read(folder: Path) -> list[Event]:
    """All files, in the order of time. A torn last line belongs to a killed process."""
    return sorted(_lines(folder), key=lambda event: event.at)


def _lines(folder: Path) -> Iterator[Event]:
    for path in folder.glob("*.history"):
        for line in path.read_text().split("\n"):
            if line.endswith("]"):
                yield Event(*json.loads(line))
