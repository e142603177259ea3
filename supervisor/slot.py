"""A slot, as its supervisor sees it: one process, one socket, at most one job.

It knows how to give a job and how to read an answer; it decides nothing about life and death
(`fleet.py`, `kill.py`) and nothing about what an outcome means (the listener). Whatever comes from
the process is a stranger's word: it is checked, and nonsense ends the slot, never the supervisor.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Stage(Enum):
    """Where a slot is in its life. It only ever moves forward, save between IDLE and BUSY."""

    STARTING = "starting"  # asked for; not ready. Ends: READY frame, boot time-out, death
    IDLE = "idle"  # may be given a job
    BUSY = "busy"  # runs `slot.running`
    LEAVING = "leaving"  # was told to leave once nothing runs; is given nothing more
    KILLING = "killing"  # doomed: whatever it says from now on loses
    GONE = "gone"  # reaped, or given up as unkillable


@dataclass(slots=True)
class Running:
    """What a slot runs, as the processes' side needs to know it; `claim` is the dispatcher's own.

    Seconds are counted from the handler's start. `soft_seconds` 0 means none.
    """

    job_id: int
    token: int
    hard_seconds: float
    soft_seconds: float = 0.0
    claim: object = None
    given_ns: int = 0  # CLOCK_MONOTONIC, set by `Slot.give`
    due_ns: int = 0  # when deadlines look at it next; theirs
    soft_sent: int = 0  # how often a soft time-out was sent; theirs


class Slot:
    """One process. Attributes are for reading; only the fleet writes them."""

    number: int
    pool: str
    generation: int
    life: int  # counts processes of this supervisor: no two slots share one
    pid: int  # 0 until known
    stage: Stage
    running: Running | None
    finished: int  # jobs that ended in it, however
    since_ns: int  # when it was asked for

    def give(self, running: Running, frame: bytes) -> bool:
        """Hands over one job. False if it cannot be given: the slot is not idle or just died.

        Never blocks. When it is False nothing has reached the slot and the job is still yours.
        """
        raise NotImplementedError

    def started_ns(self) -> int:
        """When the handler of what it runs was started, by the page; 0 if it has not been."""
        raise NotImplementedError
