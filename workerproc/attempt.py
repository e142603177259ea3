"""One attempt: runs a handler and says what came out, in one frame.

Whatever the handler does - returns, raises anything at all, calls sys.exit(), leaves tasks behind -
an answer comes out, and everything in it can be stored. Only a process that dies, or is killed,
gives none.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import json
import math
import signal
import sys
from collections.abc import Callable
from time import monotonic_ns, process_time_ns
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from jobctl.store.json_values import result_text
from jobctl.workerproc import frames, tracing
from jobctl.workerproc.cancellation import Cancellation
from jobctl.workerproc.connections import Connections
from jobctl.workerproc.context import Context, Token
from jobctl.workerproc.coroutines import Coroutines
from jobctl.workerproc.errors import Cancelled, Permanent, RetryAfter, Snooze, SoftTimeout
from jobctl.workerproc.failure import describe
from jobctl.workerproc.frames import Done, Job, Kind
from jobctl.workerproc.page import Page
from jobctl.workerproc.registry import Registry
from jobctl.workerproc.said import Said

if TYPE_CHECKING:
    from jobctl.workerproc.job import Job as Declared

#: The class of a failure that is the result's, not the handler's.
UNSTORABLE_RESULT: Final = "unstorable_result"
#: The class of a failure of `upgrade=`, or of what it returned.
UPGRADE_FAILED: Final = "upgrade_failed"

_NOTHING: Final = object()
_decode = json.JSONDecoder().decode


class Attempts:
    """Runs the attempts of one slot, one after the other."""

    def __init__(
        self, registry: Registry, page: Page, connections: Connections | None = None
    ) -> None:
        self._registry = registry
        self._page = page
        self._connections = Connections(None) if connections is None else connections
        self._coroutines = Coroutines()
        self._token = 0  # of what runs
        self._told = 0  # of what was woken for a cancel
        self._inside = False  # the handler's code is what runs, so it may be interrupted

    def run(self, job: Job) -> bytes:
        """Runs it; the answer is a DONE or an ENDED frame."""
        declared = self._registry.get(job.type)
        started_ns = monotonic_ns()
        self._page.note_started(job.token, started_ns, process_time_ns())
        if declared is None:
            return _unrunnable(job, started_ns, f"this code has no job type {job.type!r}")
        if job.schema_version > declared.job_type.schema_version:
            return _unrunnable(
                job,
                started_ns,
                f"the arguments are of version {job.schema_version}, and this code knows "
                f"{job.type} up to version {declared.job_type.schema_version}",
            )
        try:
            arguments = _arguments(job, declared)
        except BaseException as error:  # a stranger's annotations may raise anything
            return _ended(job, started_ns, _uncallable(error, job, declared))
        context = self._context(job, declared, started_ns)
        return self._outcome(job, declared, context, arguments, started_ns)

    def _outcome(
        self,
        job: Job,
        declared: Declared[Any, Any],
        context: Context,
        arguments: dict[str, Any],
        started_ns: int,
    ) -> bytes:
        """Calls what is to be called; the answer says how that ended."""
        said = context._said
        if job.compensating:
            how = {"outcome": "cancelled", "error": "it was cancelled, and its on_cancel hook ran"}
            how = self._compensate(job, declared, context, arguments, how)
            return _ended(job, started_ns, {**how, **said.to_dict()})
        handler: Callable[..., Any] = declared.handler
        if tracing.consumer is not None:
            handler = tracing.consumer(job, handler)
        try:
            result = self._call(job, handler, context, arguments)
        except BaseException as error:  # SystemExit too: the slot lives on
            how = _what_it_means(error, declared, job.attempt)
            if how["outcome"] == "cancelled" and not said.committed:
                how = self._compensate(job, declared, context, arguments, how)
            return _ended(job, started_ns, {**how, **said.to_dict()})
        if said.committed:
            return _ended(job, started_ns, {**_committed(result, said), **said.to_dict()})
        steps = context._steps.end("the handler of this job has returned")
        if result is None and steps is None and said.is_plain:
            return frames.pack_done(Done(job.token, started_ns, monotonic_ns()))
        return _ended(job, started_ns, {**_with_result(result, steps, said), **said.to_dict()})

    def close(self) -> None:
        """Ends what is kept for the next job. A slot does not: it dies."""
        self._coroutines.close()
        self._connections.close()

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler: the soft time-out has come, or somebody has cancelled.

        It reaches the handler that is meant and no other; a cancel, only in an event loop.
        """
        if not self._inside:
            return
        if self._page.cancel_aim() == self._token != self._told:
            self._told = self._token
            self._coroutines.cancel()
        elif self._page.soft_timeout_aim() == self._token and not self._coroutines.interrupt():
            raise SoftTimeout("the soft time-out of this job has come")

    def _compensate(
        self,
        job: Job,
        declared: Declared[Any, Any],
        context: Context,
        arguments: dict[str, Any],
        how: dict[str, Any],
    ) -> dict[str, Any]:
        """Runs the type's hook, if it has one; the job is cancelled whatever comes of that."""
        if declared.on_cancel is None:
            return how
        context._steps.end("a job that is cancelled has no next steps")
        if context.cancellation is not None:
            context.cancellation.is_over = context.cancellation.requested_before = True
        try:
            self._call(job, declared.on_cancel, context, arguments)
        except BaseException as error:
            return _hook_failed(error)
        return how

    def _context(self, job: Job, declared: Declared[Any, Any], started_ns: int) -> Context:
        return Context(
            type=job.type,
            job_id=job.job_id,
            key=job.key,
            subject=job.subject,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            token=Token(job.session_id, job.token),
            deadline=started_ns / 1e9 + job.hard_seconds,
            cancellation=Cancellation(
                self._page,
                job.token,
                has_commit_point=declared.has_commit_point,
                requested_before=job.compensating,
            ),
            _page=self._page,
            _connections=self._connections,
        )

    def _call(
        self, job: Job, handler: Callable[..., Any], context: Context, arguments: dict[str, Any]
    ) -> Any:
        if job.soft_seconds:
            # A handler before may have put its own in this place.
            signal.signal(signal.SIGUSR1, self.on_signal)
        result = _NOTHING
        self._token = job.token
        try:
            try:
                self._inside = True
                # In a context of its own: nothing that it sets there is seen by the next job.
                result = contextvars.copy_context().run(handler, context, **arguments)
                if result is not None and inspect.iscoroutine(result):
                    coroutine, result = result, _NOTHING
                    result = self._coroutines.run(coroutine, context.cancellation)
            finally:
                self._inside = False
        except SoftTimeout:
            # Between the handler's return and the line above it comes too late to count.
            if result is _NOTHING:
                raise
        return result


def _arguments(job: Job, declared: Declared[Any, Any]) -> dict[str, Any]:
    given = _decode(job.args.decode())
    if job.schema_version != declared.job_type.schema_version and declared.upgrade is not None:
        given = declared.upgrade(given, job.schema_version)
        if not isinstance(given, dict):
            kind = type(given).__name__
            raise TypeError(f"upgrade returned {kind}, and must return the new arguments, a dict")
    return declared.bind(given)


def _uncallable(error: BaseException, job: Job, declared: Declared[Any, Any]) -> dict[str, Any]:
    how = {**_failure(error), "permanent": True}
    newest = declared.job_type.schema_version
    if job.schema_version != newest and declared.upgrade is not None:
        how["error"] = (
            f"its arguments could not be brought from version {job.schema_version} to {newest}: "
            f"{how['error_class']}: {how['error']}"
        )
        how["error_class"] = UPGRADE_FAILED
    if job.compensating:
        how |= {"outcome": "cancelled", "hook_failed": True}
    return how


def _hook_failed(error: BaseException) -> dict[str, Any]:
    how = _failure(error)
    said = f"its on_cancel hook failed, and it is cancelled all the same: {how['error']}"
    return {**how, "error": said, "outcome": "cancelled", "hook_failed": True}


def _unrunnable(job: Job, started_ns: int, why: str) -> bytes:
    return _ended(job, started_ns, {"outcome": "unrunnable", "why": why})


def _committed(result: Any, said: Said) -> dict[str, Any]:
    """The success is in the database, with the result that it had then."""
    if result is not None and result != said.result:
        with contextlib.suppress(Exception):  # a handler has replaced the stream, or closed it
            sys.stderr.write(
                "jobctl: the handler returned a result after ctx.transaction() had committed the "
                "success of its job; it is not kept: set ctx.result inside the transaction\n"
            )
    return {"outcome": "succeeded"}


def _with_result(result: Any, steps: str | None, said: Said) -> dict[str, Any]:
    try:
        written = said.result_text if result is None else result_text(result)
        return {"outcome": "succeeded", "result": written, "steps": steps}
    except BaseException as error:  # a stranger's object may raise anything while it is read
        return {**_failure(error), "error_class": UNSTORABLE_RESULT, "permanent": True}


def _what_it_means(
    error: BaseException, declared: Declared[Any, Any], attempt: int
) -> dict[str, Any]:
    """How an attempt ended whose handler let this out."""
    try:
        return _meaning(error, declared, attempt)
    except BaseException:  # it lies about its own class, or dies of being asked
        return {**_failure(error), "permanent": False}


def _meaning(error: BaseException, declared: Declared[Any, Any], attempt: int) -> dict[str, Any]:
    match alone := _alone(error):
        case Snooze(seconds=seconds) if _is_delay(seconds):
            return {"outcome": "snoozed", "snooze_seconds": seconds}
        case Cancelled():
            return {**_failure(error), "outcome": "cancelled"}
        case SoftTimeout():
            return {**_failure(error), "outcome": "timeout"}
        case Permanent():
            return {**_failure(error), "permanent": True}
        case RetryAfter(seconds=seconds, hold_limit=hold) if _is_delay(seconds):
            return {**_failure(error), "retry_after_seconds": seconds, "hold_limit": hold is True}
        case _:
            return {**_failure(error), **_by_class(alone, declared, attempt)}


def _alone(error: BaseException) -> BaseException:
    """What a task group wraps is still what was raised, if there is nothing beside it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _is_delay(seconds: object) -> bool:
    return type(seconds) in (int, float) and 0 <= seconds < math.inf  # type: ignore[operator]


def _by_class(error: BaseException, declared: Declared[Any, Any], attempt: int) -> dict[str, Any]:
    """What the type says of errors of this class."""
    try:
        verdict = declared.retry.verdict(error, attempt)
    except BaseException:  # a metaclass may have an __instancecheck__ of its own
        return {"permanent": False}
    if verdict.delay_seconds is None:
        return {"permanent": verdict.permanent}
    return {"permanent": False, "retry_after_seconds": verdict.delay_seconds}


def _failure(error: BaseException) -> dict[str, Any]:
    failure = describe(error)
    return {
        "outcome": "failed",
        "error_class": failure.error_class,
        "error_code": failure.error_code,
        "error": failure.error,
        "stack": failure.stack,
    }


def _ended(job: Job, started_ns: int, how: dict[str, Any]) -> bytes:
    times = {"token": job.token, "started_ns": started_ns, "ended_ns": monotonic_ns()}
    return frames.pack(Kind.ENDED, {**how, **times})
