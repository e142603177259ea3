"""What a handler knows about the attempt that it is: its first argument, `ctx`.

Facts, fixed when the attempt begins, save that somebody may want it to end; and what is to come of
it. Time is monotonic: `deadline` can be compared with `time.monotonic()` and with nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple, Unpack

from jobctl.store.new_job import AllOptions, NewJob, new_job
from jobctl.workerproc.cancellation import Cancellation
from jobctl.workerproc.steps import Steps

_LOGGER = logging.getLogger("jobctl.job")


class Token(NamedTuple):
    """The right to one attempt. Later claims of one session have greater counters.

    A handler that writes elsewhere can keep it beside what it writes, and refuse writes of another
    token than the one it saw last.
    """

    session: int
    counter: int

    def __str__(self) -> str:
        return f"{self.session:x}-{self.counter}"


_NO_TOKEN = Token(0, 0)


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry `job_id`, `job_type` and `attempt`."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Adds them beside what the caller gives as `extra`."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One attempt of one job. Tests make their own: only `type` has to be given."""

    type: str
    job_id: int = 0
    key: str | None = None
    subject: str | None = None
    attempt: int = 1
    max_attempts: int = 1
    token: Token = _NO_TOKEN
    deadline: float = float("inf")
    cancellation: Cancellation | None = field(default=None, repr=False, compare=False)
    _steps: Steps = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_steps", Steps(self.job_id))

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants this job to end. It stays so, also in the on_cancel hook."""
        return self.cancellation is not None and self.cancellation.requested

    def check(self) -> None:
        """A safe point: raises Cancelled if somebody has cancelled the job. Cheap."""
        if self.cancellation is not None:
            self.cancellation.check()

    def commit_point(self) -> None:
        """The last safe point, for a type that is declared with cancel="before_commit".

        Raises Cancelled like `check`, or returns, and from then on the job cannot be cancelled any
        more: `check` does not raise, no task is cancelled, and no force is used. Of another type it
        is a `check`.
        """
        if self.cancellation is not None:
            self.cancellation.commit_point()

    def remaining(self) -> float:
        """Seconds until the hard deadline, never negative: meant for every client's time-out."""
        return max(0.0, self.deadline - monotonic())

    def enqueue(
        self,
        type: str | NewJob,
        args: Mapping[str, Any] | None = None,
        **options: Unpack[AllOptions],
    ) -> NewJob:
        """Enqueues a next step: it exists from the moment in which this job has succeeded.

        Takes what `jobctl.enqueue` takes, or an item (`send_invoice.item(...)`), and returns the
        item: another can come after it (`after=[item]`). If this attempt fails, is killed or has
        lost its claim, nothing of it was ever there, and the next attempt begins anew. At most
        1,000 steps, and 1 MiB. Raises InvalidJob.
        """
        item = type if isinstance(type, NewJob) else new_job(type, args, **options)
        return self.enqueue_all([item])[0]

    def enqueue_all(self, items: Sequence[NewJob]) -> list[NewJob]:
        """The same for several, all or none."""
        return self._steps.add(items)

    @property
    def steps(self) -> tuple[NewJob, ...]:
        """What was enqueued so far for when this job succeeds."""
        return self._steps.items

    @property
    def log(self) -> JobLog:
        """A logger ("jobctl.job") that knows which attempt of which job speaks."""
        return JobLog(
            _LOGGER, {"job_id": self.job_id, "job_type": self.type, "attempt": self.attempt}
        )
