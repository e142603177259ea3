"""What the fleet tells the supervisor, and nothing else does.

Every method is called from the event loop, in the order in which things happened to that slot, and
must return at once: no SQL, no waiting. An exception that one of them lets out is the supervisor's
own fault and reaches the loop's exception handler; the fleet stays consistent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from jobctl.supervisor.exits import ExitReason
from jobctl.workerproc.errors import AppError

if TYPE_CHECKING:
    from jobctl.store.cron_spec import CronSpec
    from jobctl.store.job_type import JobType
    from jobctl.supervisor.slot import Running, Slot
    from jobctl.workerproc.frames import Done


class Reason(StrEnum):
    """Why a slot is no more. The first eleven are what `Fleet.kill` takes."""

    TIMEOUT = "timeout"  # its job's hard deadline
    CANCEL = "cancel"  # its job was cancelled by force
    MEMORY = "memory"  # a ceiling
    CPU = "cpu"  # likewise
    LOST = "lost"  # the claim is no longer ours
    INTERRUPT = "interrupt"  # a drain ran out of patience
    LEASE = "lease"  # the lease is about to be over, and others may run its job then
    STOP = "stop"  # the supervisor leaves
    BOOT = "boot"  # it never became ready: died or hung while importing the app
    CRASH = "crash"  # it died by itself, closed its channel, or spoke nonsense
    RECYCLE = "recycle"  # it had served long enough
    RELOAD = "reload"  # a newer generation took its place


@dataclass(frozen=True, slots=True)
class Death:
    """The end of one slot's process, with all that is known about it.

    `started` is what the shared page says about the running claim: whether its handler had
    started. `peak_memory_bytes` is of the process's whole life; `cpu_seconds` is of the running
    attempt, or of the whole life where no attempt had started. `progress` is what the attempt said
    of it last. `stack` is the dump that was taken
    before a kill, or what Python wrote while it crashed.
    """

    reason: Reason
    exit: ExitReason
    sentence: str
    stack: str | None
    peak_memory_bytes: int
    cpu_seconds: float
    started: bool
    started_ns: int
    progress: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """The app could not be imported. The fleet tries again, more and more rarely.

    `permanent`: the app does not exist as named, so only a new configuration helps.
    `reloading`: the generation before is still there and goes on working.
    """

    generation: int
    error_class: str
    message: str
    stack: str
    permanent: bool
    reloading: bool

    @property
    def words(self) -> str:
        """For one line. Our own error names the application and the error already."""
        own = self.error_class == AppError.__name__
        return self.message if own else f"{self.error_class}: {self.message}"


class Notice(StrEnum):
    """Things worth a line in the log, and perhaps a metric, that need no answer."""

    SLOT_READY = "slot_ready"
    SLOT_DELAYED = "slot_delayed"  # its replacement waits, because too many died
    TEMPLATE_LOST = "template_lost"
    THREADS_AT_IMPORT = "threads_at_import"  # the app is imported in each slot instead
    UNKILLABLE = "unkillable"
    LEAKED = "leaked"  # processes of a handler's that would not die
    OUTLIVED = "outlived"  # a job, by processes that it had started: its slot is replaced
    TOO_LARGE = "too_large"  # its process holds more memory than a slot may keep
    OUTSIDE_GROUP = "outside_group"  # it could not join its control group
    OUTPUT_DROPPED = "output_dropped"
    RELOADED = "reloaded"
    RELOAD_FAILED = "reload_failed"  # the old generation was kept


class Listener(Protocol):
    """Who is told."""

    def on_types(self, generation: int, types: list[JobType], crons: list[CronSpec]) -> None:
        """What the app of this generation can run, and its crons. Once a generation, before its
        first idle slot; again only if the template had to be started anew."""

    def on_idle(self, slot: Slot) -> None:
        """A new slot is ready and has nothing to do. It may be given something at once.

        Not called after `on_done` or `on_ended`: those slots are idle as well when they are
        called, unless the slot is about to leave (`slot.stage` says so, `slot.give` returns False).
        """

    def on_done(self, slot: Slot, running: Running, done: Done) -> None:
        """It succeeded without a result."""

    def on_ended(self, slot: Slot, running: Running, body: dict[str, Any]) -> None:
        """It ended some other way; `body` is a checked ENDED frame (see `endings.py`)."""

    def on_note(self, slot: Slot, running: Running | None, body: dict[str, Any]) -> None:
        """The slot remarks on what it runs. The body is an object and not checked further."""

    def on_death(self, slot: Slot, running: Running | None, death: Death) -> None:
        """A slot is gone, with what it ran, if anything: that did not end, and will not.

        Its replacement has already been asked for. Called once for each slot.
        """

    def on_output(self, slot: Slot | None, job_id: int | None, line: str) -> None:
        """A line that it printed, without its newline; slot None is the template."""

    def on_load_failed(self, failure: LoadFailure) -> None:
        """The app could not be imported."""

    def on_notice(self, notice: Notice, slot: Slot | None, sentence: str) -> None:
        """Something worth logging happened."""
