"""The items of one call, written down for the function `enqueue_many`: who comes after whom.

An item that comes after another of the same call names it by its position, and that one comes
first: so no item ever waits for itself, however far round. What is too large for one statement goes
in chunks, and then what an earlier chunk has made is named by its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobctl.store.errors import InvalidJob
from jobctl.store.new_job import NewJob

#: PostgreSQL refuses a message above 1 GiB and builds several copies of what is smaller.
CHUNK_BYTES = 64 * 1024 * 1024
#: One parent as text: `{"item":12345678},`, or an id.
_PARENT_BYTES = 21


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some of the items of a call, in order, from the position `start` on (0 is the first)."""

    jobs: Sequence[NewJob]
    positions: Mapping[int, int]  # of all items of the call, by identity; 0 is the first
    start: int = 0
    mine: int = 0  # the job that enqueues them when it succeeds: all come after it

    def text(self, ids: Sequence[int] = (), traceparent: str | None = None) -> str:
        """The JSON array; `ids` are those of the chunks before this one, `traceparent` of the span
        that enqueues them. Raises InvalidJob when an item comes after one that is not before it in
        this call."""
        return f"[{','.join(self._texts(ids, traceparent))}]"

    def _texts(self, ids: Sequence[int], traceparent: str | None) -> Iterator[str]:
        for at, job in enumerate(self.jobs, start=self.start):
            parents = [parent for parent in job.after if parent != self.mine]
            named = [self._named(parent, job, at, ids) for parent in parents]
            yield job.as_item(named, traceparent)

    def _named(
        self, parent: int | NewJob, job: NewJob, at: int, ids: Sequence[int]
    ) -> int | dict[str, int]:
        if isinstance(parent, int):
            return parent
        position = self.positions.get(id(parent))
        if position is None or position >= at:
            where = "it is not in this call" if position is None else "it does not stand before it"
            raise InvalidJob(
                f"{job.type}, job {at + 1} of this call, comes after an item of {parent.type}, and "
                f"{where}: enqueue them together, in the order in which they run"
            )
        return ids[position] if position < self.start else {"item": position - self.start + 1}


def chunks_of(jobs: Sequence[NewJob]) -> list[Chunk]:
    """Chunks of at most CHUNK_BYTES, or one job, each. Raises InvalidJob; see `Chunk.text`."""
    positions: dict[int, int] = {}
    if any(job.after for job in jobs):
        for at, job in enumerate(jobs):
            positions.setdefault(id(job), at)
        _refuse_strangers(jobs, positions)
    chunks: list[Chunk] = []
    start = size = 0
    for at, job in enumerate(jobs):
        room = len(job.text) + 1 + _PARENT_BYTES * len(job.after)
        if at > start and size + room > CHUNK_BYTES:
            chunks.append(Chunk(jobs[start:at], positions, start))
            start, size = at, 0
        size += room
    if jobs:
        chunks.append(Chunk(jobs[start:], positions, start))
    return chunks


def _refuse_strangers(jobs: Sequence[NewJob], positions: Mapping[int, int]) -> None:
    """Before anything of the call is sent."""
    Chunk(jobs, positions).text()
