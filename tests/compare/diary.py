"""What the jobs have written about themselves, and what it adds up to. Pure, but for `read`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """`what` is start, then end, or left (by an exception); dies comes before a death."""

    at: float
    name: str
    what: str
    pid: int


class Diary:
    """The lines of one run."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = list(lines)

    @classmethod
    def read(cls, folder: Path) -> Diary:
        file = folder / "diary"
        text = file.read_text() if file.exists() else ""
        rows = [row.split() for row in text.splitlines()]
        return cls(Line(float(at), name, what, int(pid)) for at, name, what, pid in rows)

    def times(self, name: str, what: str) -> list[float]:
        return [line.at for line in self.lines if (line.name, line.what) == (name, what)]

    def runs(self, name: str) -> int:
        return len(self.times(name, "start"))

    def first(self, name: str, what: str = "start") -> float | None:
        return next(iter(self.times(name, what)), None)

    def pid_of_run(self, name: str, run: int) -> int:
        """Runs count from 1."""
        return [line.pid for line in self.lines if (line.name, line.what) == (name, "start")][
            run - 1
        ]

    def running(self, alive: Callable[[int], bool]) -> dict[str, int]:
        """Name to the number of its runs that have begun, not ended, and have a process."""
        open_runs: dict[tuple[str, int], int] = {}
        for line in self.lines:
            if line.what == "dies":
                continue
            step = 1 if line.what == "start" else -1
            key = (line.name, line.pid)
            open_runs[key] = open_runs.get(key, 0) + step
        found: dict[str, int] = {}
        for (name, pid), count in open_runs.items():
            if count > 0 and alive(pid):
                found[name] = found.get(name, 0) + count
        return found
