"""Handlers that are coroutines: one event loop a slot, made when the first one comes.

The loop stays for the next jobs, so that clients and pools that belong to it can be kept. A job's
tasks do not: what it leaves running is cancelled before it counts as ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import types
from collections.abc import Coroutine, Generator
from typing import Any, Final

from jobctl.workerproc.cancellation import Cancellation
from jobctl.workerproc.errors import Cancelled, SoftTimeout

#: How long a left-over task may take to let itself be cancelled.
_TIDY_SECONDS: Final = 1.0
_NAMES_SHOWN: Final = 5

Handler = Coroutine[Any, Any, Any]


class Coroutines:
    """Runs coroutines, one after the other."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._task: asyncio.Task[Any] | None = None  # of the coroutine that runs
        self._interrupted = False
        self._cancelled = False  # for somebody's request, not by the handler itself
        self._cancellation: Cancellation | None = None

    def run(self, coroutine: Handler, cancellation: Cancellation | None = None) -> Any:
        """What it returns or raises; nothing of it runs any more then.

        Raises Cancelled where it let the cancellation of its task through.
        """
        self._cancellation = cancellation
        if self._runner is None:
            self._runner = asyncio.Runner()
        runner = self._runner
        result: Any = None
        error: BaseException | None = None
        try:
            result, error = runner.run(self._shielded(coroutine))
        except BaseException as torn:  # a task beside it raised SystemExit or KeyboardInterrupt
            error = torn
        finally:
            self._task = None
        self._tidy(runner)
        if self._cancelled and isinstance(error, asyncio.CancelledError):
            raise Cancelled from error
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Closes the event loop, if there was a coroutine."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def interrupt(self) -> bool:
        """Raises SoftTimeout in the coroutine where it waits. From a signal handler.

        False when none runs. One that computes without waiting is not reached.
        """
        task = self._task
        if task is None:
            return False
        task.get_loop().call_soon_threadsafe(self._cancel, task)
        return True

    def cancel(self) -> None:
        """Cancels the task of the coroutine, once. From a signal handler.

        What it awaits is cancelled as by anybody: task groups and time-outs see nothing unusual.
        Nothing happens past its commit point.
        """
        task = self._task
        if task is not None:
            task.get_loop().call_soon_threadsafe(self._cancel_for_somebody, task)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        if task is self._task:
            self._interrupted = True
            task.cancel()

    def _cancel_for_somebody(self, task: asyncio.Task[Any]) -> None:
        asked = self._cancellation
        if task is self._task and not self._cancelled and asked is not None and not asked.is_over:
            self._cancelled = True
            task.cancel()

    async def _shielded(self, coroutine: Handler) -> tuple[Any, BaseException | None]:
        """Raises nothing: SystemExit and KeyboardInterrupt would tear the loop apart."""
        self._interrupted = self._cancelled = False
        self._task = asyncio.current_task()
        if self._cancellation is not None and self._cancellation.requested:
            self.cancel()  # the signal came before there was a task
        try:
            return await self._relay(coroutine), None
        except BaseException as error:
            return None, error
        finally:
            self._task = None

    @types.coroutine
    def _relay(self, coroutine: Handler) -> Generator[Any, Any, Any]:
        """Drives the coroutine; a cancellation that `interrupt` caused arrives as SoftTimeout."""
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waiting = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                return stop.value
            value = error = None
            try:
                value = yield waiting
            except GeneratorExit:
                coroutine.close()
                raise
            except asyncio.CancelledError as cancelled:
                error = self._meant_by(cancelled)
            except BaseException as other:
                error = other

    def _meant_by(self, cancelled: asyncio.CancelledError) -> BaseException:
        if not self._interrupted:
            return cancelled
        self._interrupted = False
        if self._task is not None:
            self._task.uncancel()  # so that asyncio.timeout() and task groups are not misled
        return SoftTimeout("the soft time-out of this job has come")

    def _tidy(self, runner: asyncio.Runner) -> None:
        left = asyncio.all_tasks(runner.get_loop())
        if not left:
            return
        names = ", ".join(sorted(task.get_name() for task in left)[:_NAMES_SHOWN])
        _report(f"the job ended and left {len(left)} tasks running; they are cancelled: {names}")
        for task in left:
            task.cancel()
        try:
            _, stubborn = runner.run(asyncio.wait(left, timeout=_TIDY_SECONDS))
        except BaseException:  # one of them tears the loop once more
            stubborn = left
        if stubborn:
            _report(f"{len(stubborn)} of them did not end; the next job gets a new event loop")
            self._runner = None


def _report(sentence: str) -> None:
    with contextlib.suppress(Exception):  # a handler has replaced the stream, or closed it
        print(f"jobctl: {sentence}", file=sys.stderr)  # noqa: T201 - stderr is the job's log
