"""What a handler has enqueued for when its job succeeds: kept here, checked, until that is known.

Nothing is sent from here. What is collected travels with the answer of the attempt and is written
in the transaction that settles the success; of an attempt that ends in any other way it is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from jobctl.store.errors import InvalidJob
from jobctl.store.items import Chunk
from jobctl.store.new_job import NewJob

#: They are written together with the ends of other jobs, which must not wait for long.
MOST_STEPS = 1_000
MOST_STEPS_BYTES = 1024 * 1024
_ADVICE = (
    "enqueue one job that enqueues them in a transaction of its own, or enqueue on a connection, "
    "with keys"
)


class Steps:
    """The next steps of one attempt, in the order in which they were enqueued."""

    __slots__ = ("_items", "_job_id", "_lock", "_over", "_positions", "_size")

    def __init__(self, job_id: int) -> None:
        self._job_id = job_id
        self._items: list[NewJob] = []
        self._positions: dict[int, int] = {}  # of each, by identity
        self._size = 0
        self._over: str | None = None
        self._lock = Lock()

    def add(self, items: Sequence[NewJob]) -> list[NewJob]:
        """Keeps all of them, or none, and returns them: what may come after them is told by these.

        To come after the running job is what they do anyway. Raises InvalidJob when there are too
        many, or one comes after an item that was not enqueued before it; RuntimeError when it is
        too late.
        """
        with self._lock:  # threads of one handler
            return self._add(items)

    def _add(self, items: Sequence[NewJob]) -> list[NewJob]:
        if self._over is not None:
            raise RuntimeError(f"nothing was enqueued: {self._over}")
        already = len(self._items)
        if already + len(items) > MOST_STEPS:
            raise InvalidJob(
                f"this job enqueues {already + len(items)} jobs, more than {MOST_STEPS}: {_ADVICE}"
            )
        positions = {**self._positions}
        for at, one in enumerate(items, start=already):
            if one.after:  # refuses what does not stand before it; the ids are anybody's
                Chunk([one], positions, at, self._job_id).text(range(1, at + 1))
            positions.setdefault(id(one), at)
        size = self._size + sum(len(one.text) + 24 * len(one.after) + 40 for one in items)
        if size > MOST_STEPS_BYTES:
            raise InvalidJob(
                f"what this job enqueues is {size} bytes, more than {MOST_STEPS_BYTES}: {_ADVICE}"
            )
        self._items += items
        self._positions, self._size = positions, size
        return list(items)

    @property
    def items(self) -> tuple[NewJob, ...]:
        """So far."""
        return tuple(self._items)

    def text(self) -> str | None:
        """The JSON array as `enqueue_many` takes it; None if there are none."""
        if not self._items:
            return None
        return Chunk(self._items, self._positions, mine=self._job_id).text()

    def end(self, why: str) -> str | None:
        """As `text`; and whoever comes later is refused, with this sentence."""
        with self._lock:
            self._over = why
            return self.text()
