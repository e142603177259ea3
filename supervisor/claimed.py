"""A claimed job: what the supervisor holds of it from the claim until it is settled."""

from __future__ import annotations

from dataclasses import dataclass

from jobctl.store.link import Row


@dataclass(slots=True, eq=False)
class Claimed:
    """The right to one attempt. The fields up to `traceparent` are the columns of `claim.sql`.

    `attempt` and `crashes` are what was spent before this attempt. `waited` is due until claimed,
    `age` since the enqueue, `elapsed` since the first attempt began (None: this is the first); all
    in seconds, measured by the database when it was claimed at `claimed_ns` (CLOCK_MONOTONIC).
    """

    session_id: int
    claimed_ns: int
    queue: str
    priority: int
    lane: str
    seq: int
    job_id: int
    token: int
    type: str
    key: str | None
    subject: str | None
    schema_version: int
    attempt: int
    crashes: int
    max_attempts: int | None
    timeout_seconds: float | None
    args: str
    waited: float
    age: float
    elapsed: float | None
    compensating: bool = False  # cancelled, and its hook is all that is left to run
    traceparent: str | None = None  # of the span that enqueued it, if anybody traces
    marked: bool = False  # acknowledged early: it is taken for begun

    @classmethod
    def from_row(cls, session_id: int, claimed_ns: int, row: Row) -> Claimed:
        """From one row of `claim.sql`."""
        return cls(session_id, claimed_ns, *row)
