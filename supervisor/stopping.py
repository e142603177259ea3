"""The way out, one step after the other and never back.

RUNNING -> DRAINING (claims stop, what runs may finish) -> KILLING (patience is over) ->
WRITING (nothing runs; outcomes are written) -> DONE. Asking again only ever hurries it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

#: How long outcomes may take to be written when nothing runs any more. What is not written by
#: then is not lost: the lease ends, and the jobs run again.
WRITING_SECONDS = 15.0


class Phase(IntEnum):
    """Where a supervisor is on its way out."""

    RUNNING = 0
    DRAINING = 1
    KILLING = 2
    WRITING = 3
    DONE = 4


@dataclass(slots=True)
class Stop:
    """Pure: told the time and what there is, says what phase it is."""

    phase: Phase = Phase.RUNNING
    because: str = ""
    patience_ends: float = 0.0
    writing_ends: float = 0.0

    @property
    def begun(self) -> bool:
        """Whether the supervisor is leaving."""
        return self.phase is not Phase.RUNNING

    def begin(self, because: str, now: float, patience: float) -> bool:
        """Asks for it. False if it had begun before; then it can only become shorter."""
        first = not self.begun
        if first:
            self.phase, self.because, self.patience_ends = Phase.DRAINING, because, now + patience
        self.patience_ends = min(self.patience_ends, now + patience)
        return first

    def advance(self, now: float, busy: int, unwritten: int) -> Phase:
        """The phase, given what still runs and what is not written yet."""
        if self.phase is Phase.DRAINING and now >= self.patience_ends and busy:
            self.phase = Phase.KILLING
        if self.phase in (Phase.DRAINING, Phase.KILLING) and not busy:
            self.phase, self.writing_ends = Phase.WRITING, now + WRITING_SECONDS
        if self.phase is Phase.WRITING and (not unwritten or now >= self.writing_ends):
            self.phase = Phase.DONE
        return self.phase

    def next_due(self) -> float | None:
        """When to look again although nothing happened."""
        match self.phase:
            case Phase.DRAINING:
                return self.patience_ends
            case Phase.WRITING:
                return self.writing_ends
            case _:
                return None
