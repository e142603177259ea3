"""A pool of slots, as its dispatcher sees it: its own view of the lanes, its own sense of when to
look, its own reserve. What one pool is busy with is nothing to the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from jobctl.store.job_type import JobType
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.doorbell import Doorbell
from jobctl.supervisor.lanes import Lanes
from jobctl.supervisor.pace import Pace
from jobctl.supervisor.pool_spec import PoolSpec


class Pool:
    """`others`: all pools of the host; what they name is not served by one that names nothing."""

    def __init__(self, spec: PoolSpec, others: Iterable[PoolSpec], max_reserve: int) -> None:
        self.spec = spec
        self.name = spec.name
        self.lanes = Lanes()
        self.pace = Pace(max_reserve)
        self.doorbell = Doorbell()
        self.reserve: deque[Claimed] = deque()
        self.unmarked: list[Claimed] = []  # acknowledged early, and not for sure yet
        self._taken = frozenset(
            queue for other in others if other is not spec for queue in other.queues or ()
        )

    def serves(self, queue: str) -> bool:
        """Whether its slots take jobs from this queue."""
        if self.spec.queues is not None:
            return queue in self.spec.queues
        return queue not in self._taken

    @property
    def waiting(self) -> tuple[deque[Claimed] | list[Claimed], ...]:
        """What is claimed and has no slot yet."""
        return self.reserve, self.unmarked

    def memory(self, known: JobType) -> int:
        """The ceiling of a process that runs a job of this type here, in bytes; 0: none."""
        ceilings = [each for each in (known.memory_bytes, self.spec.memory) if each]
        return min(ceilings, default=0)

    def forget(self) -> None:
        """Nothing that rests on an old connection, or an old session, holds any more."""
        self.lanes.forget()
        self.doorbell.forget()

    def __len__(self) -> int:
        """How many jobs wait here for a slot."""
        return len(self.reserve) + len(self.unmarked)
