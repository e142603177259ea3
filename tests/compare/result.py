"""What a run has shown."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CulpritResult:
    """One job went wrong beside others. Seconds count from when it hung or died."""

    runs: int
    most_at_once: int
    word: str
    """The system's own, at the end."""
    over: bool
    succeeded: bool
    slot_back: float | None
    watched: float
    hurt: list[str] = field(default_factory=list)
    restarts: int = 0
    """Of whole worker processes."""

    def bounded(self, tries: int) -> str:
        """`open`: it was not over when the time was."""
        if self.runs > tries:
            return "no"
        return "yes" if self.over else "open"


@dataclass(frozen=True)
class StopResult:
    """SIGTERM while a job hung."""

    exited_after: float | None
    left_behind: int
    """Processes that lived on without their main process."""


@dataclass(frozen=True)
class PauseResult:
    """A paused host woke late. `refused` is None if nobody had run its job in the meantime."""

    again_after: float | None
    refused: bool | None
    word: str
    """What the record said after the late write, while the second run still ran."""


Result = CulpritResult | StopResult | PauseResult

KINDS: dict[str, type[Result]] = {
    "CulpritResult": CulpritResult,
    "StopResult": StopResult,
    "PauseResult": PauseResult,
}
