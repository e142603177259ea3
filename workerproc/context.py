"""What a handler knows of the attempt that it is, and what it can say: its first argument, `ctx`.

Facts, fixed when the attempt begins, save that somebody may want it to end; and what is to come of
it. Time is monotonic: `deadline` can be compared with `time.monotonic()` and with nothing else.
What is said goes into memory (`said.py`, `steps.py`, the page) or, by a connection that the slot
lends, into the database, under the claim's own token.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, monotonic_ns
from typing import Any, NamedTuple, Unpack

from jobctl.store.json_values import result_text
from jobctl.store.new_job import AllOptions, NewJob, new_job
from jobctl.workerproc.cancellation import Cancellation
from jobctl.workerproc.connections import Connections
from jobctl.workerproc.effect import Effect, Mode, Reconcile
from jobctl.workerproc.lending import Lending
from jobctl.workerproc.page import Page
from jobctl.workerproc.progress import Number, read, record
from jobctl.workerproc.publication import Publication
from jobctl.workerproc.said import Said
from jobctl.workerproc.steps import Steps
from jobctl.workerproc.transaction import JobTransaction

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
_NO_CONNECTIONS = Connections(None)


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry `job_id`, `job_type` and `attempt`."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Adds them beside what the caller gives as `extra`."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


@dataclass(slots=True, kw_only=True, eq=False)
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
    _page: Page | None = field(default=None, repr=False)
    _connections: Connections = field(default=_NO_CONNECTIONS, repr=False)
    _said: Said = field(default_factory=Said, repr=False)
    _steps: Steps = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._steps = Steps(self.job_id)

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

    @property
    def result(self) -> Any:
        """The job's result: what was set here, unless the handler returns something else.

        It is what `transaction()` commits. Setting it raises UnstorableValue for what JSON cannot
        hold, and RuntimeError when the job has succeeded already.
        """
        return self._said.result

    @result.setter
    def result(self, value: Any) -> None:
        if self._said.committed:
            raise RuntimeError("this job has succeeded: ctx.result is set before the commit")
        self._said.result_text = None if value is None else result_text(value)
        self._said.result = value

    def progress(self, phase: str, done: Number | None = None, total: Number | None = None) -> None:
        """How far it is: `ctx.progress("rendering", done=47, total=120)`.

        Costs microseconds, however often it is called: the newest is written down about once a
        second, and when the attempt ends, whatever ends it. Seen with the job, and kept over
        retries until the next attempt says something. Raises TypeError and ValueError for what are
        no numbers of things; a phase is cut at 200 characters.
        """
        said = record(phase, done, total)
        if self._page is not None:
            self._said.progressed = True
            self._page.note_progress(self.token.counter, monotonic_ns(), said)

    def effect(
        self,
        key: str,
        mode: Mode = "mark_first",
        reconcile: Reconcile | None = None,
        conn: Any = None,
    ) -> Effect:
        """`with ctx.effect("invoice-email:1842") as effect:` asks whether that was done before.

        `mark_first`: never twice, perhaps never; an ambiguous mark is given to
        `reconcile(effect)`, which asks the world and says `effect.done(value)`,
        `effect.not_done()`, or nothing. `act_first`: never forgotten, perhaps twice. With `conn=`
        it is part of that connection's transaction, and of whatever else that commits. Raises
        LostClaim when another attempt counts now.
        """
        return Effect(self, key, mode, reconcile, conn)

    def transaction(self) -> JobTransaction:
        """`with ctx.transaction() as conn:` commits what is written on `conn`, `ctx.result`, and
        the success of this job together.

        Raises LostClaim before the commit when another attempt counts now; nothing stays then.
        """
        return JobTransaction(self)

    def publish(self, folder: str | os.PathLike[str], keep: int = 1) -> Publication:
        """`with ctx.publish("/srv/reports/2026-11") as new:` and write below `new.path`.

        When the block ends, `folder/current` points to it, whole and on the disk; before that, and
        if it ends badly, to what was there before (`jobctl.published(folder)`). A second run
        replaces nothing half-way. `keep`: versions that are left for those who still read them.
        Raises LostClaim when another attempt counts now, and OSError.
        """
        return Publication(self, folder, keep)

    def connection(self) -> Lending:
        """`with ctx.connection() as conn:` lends an autocommit connection to jobctl's database.

        Its statements end by the deadline. It is the slot's: not to be kept.
        """
        return Lending(self)

    def _progress_said(self) -> str:
        """What `settle_succeeded` is told of the progress: JSON, by token."""
        said = self._page.progress() if self._page is not None and self._said.progressed else None
        words = None if said is None else read(said.body)
        if said is None or words is None:
            return "{}"
        words["ago"] = max(0.0, (monotonic_ns() - said.at_ns) / 1e9)
        return json.dumps({str(self.token.counter): words})
