"""A seat: the place of one slot, which outlives the processes that take it.

Processes come and go; that there should be one here, and how eagerly another may follow, is
remembered in the seat.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jobctl.supervisor.backoff import Backoff
from jobctl.supervisor.slot import Slot


@dataclass(slots=True, eq=False)
class Seat:
    """Where slot `number` sits. `heir` is of the next generation and waits for its place."""

    number: int
    pool: str
    wanted: bool = True
    slot: Slot | None = None
    heir: Slot | None = None
    backoff: Backoff = field(default_factory=Backoff)
    not_before: float = 0.0  # the loop's clock
    charged: bool = False  # the next process is a replacement that somebody's death made necessary

    def slots(self) -> list[Slot]:
        """Who is here."""
        return [slot for slot in (self.slot, self.heir) if slot is not None]
