"""When handlers of the app `limited` began and ended, by the clock that all processes share."""

from __future__ import annotations

from pathlib import Path


def noted(folder: Path) -> list[tuple[int, float, float]]:
    """Job, began, ended; one for each attempt that came to its end."""
    path = folder / "times"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(job), float(began), float(ended)) for job, began, ended in map(str.split, lines)]
