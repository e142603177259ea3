"""What a supervisor knows about its own condition: a few words that several parts look at."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Condition:
    """Written by the supervisor and by `Draining`. Moments are monotonic seconds, 0 for never."""

    drained: bool = False  # asked through the control socket
    drain_requested: bool = False  # asked through the session's row
    leaving: bool = False
    fenced: bool = False  # the lease is over: nothing may run here
    resting: bool = False  # nothing runs: the loop turns seldom
    another_leads: bool = False  # at the last renewal some other host did
    led: bool = False  # this host led and does so no more
    seen_at: float = 0.0  # PostgreSQL answered
    away_at: float = 0.0  # boottime: when a connection, or this process, was last not there
    turned_at: float = 0.0  # the loop turned
    down: set[str] = field(default_factory=set)  # links on which PostgreSQL does not answer
    load_error: str | None = None  # why the app could not be imported, the last time
    backlog: tuple[int, float] | None = None  # of a leader: jobs due, and the oldest's age

    @property
    def draining(self) -> bool:
        """Whether nothing more is claimed, for whatever reason."""
        return self.drained or self.drain_requested or self.leaving
