"""One attempt in the test's own process: the code of a slot, without the slot.

Arguments and result go through JSON as they do in real life, an exception means what it means
there, and `ctx` is a real one. What is not there: deadlines (nobody kills the test), ceilings, and
what a slot puts right between two jobs.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jobctl.store.json_values import arguments_text
from jobctl.store.new_job import NewJob
from jobctl.workerproc import frames
from jobctl.workerproc.access import Access
from jobctl.workerproc.attempt import Attempts
from jobctl.workerproc.connections import Connections
from jobctl.workerproc.context import Context
from jobctl.workerproc.frames import Job as Given
from jobctl.workerproc.frames import Kind
from jobctl.workerproc.job import Job
from jobctl.workerproc.page import Page
from jobctl.workerproc.registry import Registry

_TOKEN = 1


@dataclass(frozen=True)
class Ran:
    """What came of one attempt.

    `outcome` is succeeded, failed, timeout, snoozed, cancelled or unrunnable. `error` is what the
    handler raised. `permanent` and `retry_after_seconds` are what is to become of a failure (None:
    the type's backoff), `snooze_seconds` of a snooze. `steps` are what `ctx.enqueue` was given.
    """

    outcome: str
    result: Any = None
    error: BaseException | None = None
    error_class: str | None = None
    error_code: str | None = None
    message: str | None = None
    permanent: bool = False
    retry_after_seconds: float | None = None
    snooze_seconds: float | None = None
    steps: tuple[NewJob, ...] = ()


@dataclass
class Seen:
    """What a recorded handler has met: frames carry only what can be stored."""

    error: BaseException | None = None
    ctx: Context | None = field(default=None)


def run(job: Job[..., Any], /, **arguments: Any) -> Ran:
    """Runs the handler once, and returns what came of it. Raises what the handler raises.

    Raises TypeError for arguments that are not the handler's, InvalidJob for those that cannot be
    enqueued. `attempt` does not raise, and takes what is known of the job.
    """
    ran = attempt(job, arguments)
    if ran.error is not None:
        raise ran.error
    if ran.outcome != "succeeded":
        raise AssertionError(f"{job.job_type.name} {ran.outcome}: {ran.message}")
    return ran


def attempt(
    job: Job[..., Any],
    arguments: Mapping[str, Any] | None = None,
    /,
    *,
    number: int = 1,
    max_attempts: int | None = None,
    key: str | None = None,
    subject: str | None = None,
    job_id: int = 1,
    schema_version: int | None = None,
    cancelled: bool = False,
) -> Ran:
    """Runs the handler as attempt `number`, and says what it means that it returned or raised.

    `cancelled`: somebody has asked for that already. With another `schema_version` the type's
    `upgrade` is used. Raises TypeError and InvalidJob as `run` does, and nothing of the handler's.
    """
    if not isinstance(job, Job):
        raise TypeError(f"{job!r} is no job: pass the function that @jobctl.job stands above")
    if not isinstance(arguments, Mapping | None):
        raise TypeError(f"the arguments of a job have names: pass a dict, not {arguments!r}")
    text = arguments_text(dict(arguments or {}))
    newest = job.job_type.schema_version
    version = newest if schema_version is None else schema_version
    if version == newest:
        job.bind(json.loads(text))
    given = Given(
        job_id=job_id,
        session_id=_TOKEN,
        token=_TOKEN,
        attempt=number,
        max_attempts=job.job_type.max_attempts if max_attempts is None else max_attempts,
        schema_version=version,
        hard_seconds=job.job_type.timeout_seconds,
        soft_seconds=0.0,  # its signal is the slot's business
        type=job.job_type.name,
        queue=job.job_type.queue,
        key=key,
        subject=subject,
        args=text.encode(),
    )
    seen = Seen()
    with attempts_of([recorded(job, seen)]) as (attempts, page):
        if cancelled:
            page.aim_cancel(_TOKEN)
        return ran_of(attempts.run(given), seen)


@contextmanager
def attempts_of(
    jobs: list[Job[..., Any]], access: Access | None = None
) -> Iterator[tuple[Attempts, Page]]:
    """What a slot has: the code of the jobs, a page that it shares with nobody here, perhaps a way
    to the database.

    Raises RuntimeError within a coroutine: a slot's event loop is its own.
    """
    _require_no_loop()
    registry = Registry()
    for job in jobs:
        registry.register(job)
    descriptor = Page.create("jobctl testing")
    page = Page(descriptor)
    os.close(descriptor)
    attempts = Attempts(registry, page, Connections(access))
    try:
        yield attempts, page
    finally:
        attempts.close()
        page.close()


def recorded(job: Job[..., Any], seen: Seen) -> Job[..., Any]:
    """The same job, whose handler leaves behind what it raised and the `ctx` that it had."""
    handler = job.handler
    copied = copy.copy(job)
    if inspect.iscoroutinefunction(handler):

        async def recording_coroutine(ctx: Context, **arguments: Any) -> Any:
            seen.ctx = ctx
            try:
                return await handler(ctx, **arguments)
            except BaseException as error:
                seen.error = error
                raise

        copied.handler = recording_coroutine
        return copied

    def recording(ctx: Context, **arguments: Any) -> Any:
        seen.ctx = ctx
        try:
            return handler(ctx, **arguments)
        except BaseException as error:
            seen.error = error
            raise

    copied.handler = recording
    return copied


def ran_of(answer: bytes, seen: Seen) -> Ran:
    """What a slot's answer says."""
    steps = () if seen.ctx is None else seen.ctx.steps
    if frames.kind_of(answer) is Kind.DONE:
        return Ran("succeeded", steps=steps)
    body = frames.unpack(answer)
    if body["outcome"] == "succeeded":
        result = body.get("result")
        return Ran("succeeded", None if result is None else json.loads(result), steps=steps)
    return Ran(
        outcome=body["outcome"],
        error=seen.error,
        error_class=body.get("error_class"),
        error_code=body.get("error_code"),
        message=body.get("error") or body.get("why"),
        permanent=body.get("permanent", False),
        retry_after_seconds=body.get("retry_after_seconds"),
        snooze_seconds=body.get("snooze_seconds"),
    )


def _require_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "jobs run in an event loop of their own, so not within a coroutine: call this from a plain "
        "test, or await the handler itself: await job(jobctl.Context(type=...), ...)"
    )
