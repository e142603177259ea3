"""What comes out of an attempt, for everything that a handler can do. In this process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobctl.workerproc import frames
from jobctl.workerproc.attempt import Attempts
from jobctl.workerproc.context import Context
from jobctl.workerproc.errors import Cancelled, Permanent, RetryAfter, Snooze, SoftTimeout
from jobctl.workerproc.frames import Done, Job, Kind
from jobctl.workerproc.job import job
from jobctl.workerproc.page import Page
from jobctl.workerproc.registry import Registry
from jobctl.workerproc.retry import Backoff, Retry

Run = Callable[..., Any]


@pytest.fixture
def page() -> Iterator[Page]:
    """A page of shared memory."""
    descriptor = Page.create("test")
    page = Page(descriptor)
    os.close(descriptor)
    yield page
    page.close()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, page: Page) -> Run:
    """Declares a function as a job and runs it once."""
    registry = Registry()
    monkeypatch.setattr("jobctl.workerproc.job.registry", registry)
    attempts = Attempts(registry, page)

    def run_it(handler: Any, *, args: bytes = b"{}", version: int = 1, **options: Any) -> Any:
        name = "absent"
        if handler is not None:
            handler.__name__ = name = f"handler_{len(registry)}"
            job(**options)(handler)
        given = Job(7, 1, 42, 2, 5, version, 60.0, 0.0, name, "default", "k", None, args)
        answer = attempts.run(given)
        if frames.kind_of(answer) is Kind.DONE:
            return frames.unpack_done(answer)
        assert frames.kind_of(answer) is Kind.ENDED
        body = frames.unpack(answer)
        assert body["token"] == 42
        assert body["started_ns"] <= body["ended_ns"]
        return body

    return run_it


def test_nothing_returned(run: Run, page: Page) -> None:
    """A success without a result is the small frame; the page says that it had begun."""

    def handler(ctx: Context) -> None:
        assert page.started().token == 42
        assert (ctx.job_id, ctx.attempt, ctx.max_attempts, ctx.key) == (7, 2, 5, "k")
        assert 59 < ctx.remaining() <= 60

    done = run(handler)
    assert isinstance(done, Done)
    assert done.token == 42 and done.started_ns == page.started().at_ns <= done.ended_ns


def test_something_returned(run: Run) -> None:
    """Its JSON text is the result."""
    body = run(lambda_that(lambda ctx, a: {"a": [a, None]}), args=b'{"a": 5}')
    assert body["outcome"] == "succeeded"
    assert json.loads(body["result"]) == {"a": [5, None]}


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), "x" * 100_000, {"\0": 1}])
def test_what_cannot_be_stored_returned(run: Run, value: Any) -> None:
    """The work is done and would be done again: no second attempt."""
    body = run(lambda_that(lambda ctx: value))
    assert body["outcome"] == "failed"
    assert body["error_class"] == "unstorable_result"
    assert body["permanent"] is True


class Odd(Exception):
    """Raises while it is printed."""

    def __str__(self) -> str:
        raise SystemExit("no")


FAILURES = [
    (ValueError("x"), {"outcome": "failed", "error_class": "ValueError", "permanent": False}),
    (LookupError("x"), {"outcome": "failed", "error_class": "LookupError", "permanent": True}),
    (SystemExit(3), {"outcome": "failed", "error_class": "SystemExit", "permanent": False}),
    (KeyboardInterrupt(), {"outcome": "failed", "error_class": "KeyboardInterrupt"}),
    (GeneratorExit(), {"outcome": "failed", "error_class": "GeneratorExit"}),
    (asyncio.CancelledError(), {"outcome": "failed", "error_class": "CancelledError"}),
    (MemoryError(), {"outcome": "failed", "error_class": "MemoryError"}),
    (Odd(), {"outcome": "failed", "error_class": "Odd"}),
    (ValueError("\0\ud800"), {"outcome": "failed", "error_class": "ValueError"}),
    (Permanent("x", code="OLD"), {"outcome": "failed", "permanent": True, "error_code": "OLD"}),
    (RetryAfter("60s"), {"outcome": "failed", "retry_after_seconds": 60.0}),
    (Snooze("10m"), {"outcome": "snoozed", "snooze_seconds": 600.0}),
    (Cancelled(), {"outcome": "cancelled"}),
    (SoftTimeout("x"), {"outcome": "timeout", "error_class": "SoftTimeout"}),
    (ExceptionGroup("g", [Permanent("x")]), {"outcome": "failed", "permanent": True}),
    (BaseExceptionGroup("g", [SoftTimeout()]), {"outcome": "timeout"}),
    (ExceptionGroup("g", [Permanent("x"), KeyError("y")]), {"outcome": "failed"}),
]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("error", "expected"), FAILURES, ids=lambda value: type(value).__name__)
def test_raised(run: Run, error: BaseException, expected: dict[str, Any], is_async: bool) -> None:
    """Every exception is an outcome; none ends the slot."""

    def handler(ctx: Context) -> None:
        raise error

    async def coroutine(ctx: Context) -> None:
        await asyncio.sleep(0)
        raise error

    retry = Retry(permanent=(LookupError,))
    body = run(coroutine if is_async else handler, retry=retry)
    assert {name: body.get(name) for name in expected} == expected
    json.dumps(body).encode("ascii")


def test_a_class_with_a_policy_of_its_own(run: Run) -> None:
    """Its backoff is worked out here, where the class is known; a class that lies about what it is
    fails like any other."""

    class Liar(type):
        def __instancecheck__(cls, instance: object) -> bool:
            raise KeyError("no")

    class Lied(Exception, metaclass=Liar):
        pass

    def failing(error: BaseException) -> Any:
        def handler(ctx: Context) -> None:
            raise error

        return handler

    retry = Retry(per_class={OSError: Backoff(min=10, max=10), TypeError: Backoff(max_attempts=2)})
    body = run(failing(TimeoutError("x")), retry=retry)
    assert body["permanent"] is False
    assert 8.0 <= body["retry_after_seconds"] <= 10.0
    wrapped = run(failing(ExceptionGroup("g", [TimeoutError("x")])), retry=retry)
    assert 8.0 <= wrapped["retry_after_seconds"] <= 10.0
    assert run(failing(TypeError("x")), retry=retry)["permanent"] is True  # its second attempt
    assert "retry_after_seconds" not in run(failing(KeyError("x")), retry=retry)
    assert "retry_after_seconds" not in run(failing(RetryAfter(None)), retry=retry)
    lied = run(failing(KeyError("x")), retry=Retry(per_class={Lied: Backoff()}))
    assert (lied["outcome"], lied["permanent"]) == ("failed", False)


def test_an_unknown_type(run: Run) -> None:
    """Not a failure of the job: another host may know it."""
    body = run(None)
    assert body["outcome"] == "unrunnable"
    assert "no job type 'absent'" in body["why"]


def test_arguments_newer_than_the_code(run: Run) -> None:
    """The handler is not called."""
    body = run(lambda_that(lambda ctx: 1 / 0), version=3, schema_version=2)
    assert body["outcome"] == "unrunnable"
    assert "version 3" in body["why"]


@pytest.mark.parametrize("args", [b"{", b'{"b": 1}', b"\xff", b"[1]", b"{}"])
def test_arguments_that_do_not_fit(run: Run, args: bytes) -> None:
    """No further attempt can help."""
    body = run(lambda_that(lambda ctx, a: None), args=args)
    assert body["outcome"] == "failed" and body["permanent"] is True


def test_tasks_left_behind(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """They are cancelled before the job counts as ended, and that is said."""
    cancelled = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    kept: list[Any] = []

    async def handler(ctx: Context) -> None:
        kept.append(asyncio.create_task(forever()))
        await asyncio.sleep(0)

    assert isinstance(run(handler), Done)
    assert cancelled == [True]
    assert "left 1 tasks running" in capsys.readouterr().err


def test_one_loop_for_all_coroutines(run: Run) -> None:
    """A client that belongs to the loop can be kept from job to job, also after a wild one."""
    loops = []

    async def handler(ctx: Context) -> None:
        loops.append(asyncio.get_running_loop())

    async def wild(ctx: Context) -> None:
        loops.append(asyncio.get_running_loop())
        raise KeyboardInterrupt

    for one in (handler, wild, handler, wild):
        run(one)
    assert len(set(map(id, loops))) == 1


def test_a_task_exits(run: Run) -> None:
    """SystemExit in a task beside the handler is the handler's failure; the loop is whole."""

    async def leave() -> None:
        raise SystemExit(4)

    async def handler(ctx: Context) -> None:
        await asyncio.gather(leave(), asyncio.Event().wait())

    body = run(handler)
    assert (body["outcome"], body["error_class"]) == ("failed", "SystemExit")

    async def next_one(ctx: Context) -> int:
        await asyncio.sleep(0.001)
        return len(asyncio.all_tasks())

    assert run(next_one)["result"] == "1"


def test_a_plain_function_that_returns_a_coroutine(run: Run) -> None:
    """A decorator may hide that a handler is a coroutine function."""

    async def inner() -> int:
        return 5

    assert run(lambda_that(lambda ctx: inner()))["result"] == "5"


def test_context_variables_do_not_leak(run: Run) -> None:
    """What one job sets, the next does not see."""
    from contextvars import ContextVar

    variable = ContextVar("variable", default="none")

    def handler(ctx: Context) -> str:
        before = variable.get()
        variable.set("set")
        return before

    assert [run(lambda_that(handler))["result"] for _ in range(2)] == ['"none"', '"none"']


def test_a_soft_time_out_outside_of_the_handler(run: Run, page: Page) -> None:
    """A late signal is nobody's."""
    attempts = Attempts(Registry(), page)
    page.aim_soft_timeout(0)
    attempts.on_signal(10, None)
    assert "jobctl" in sys.modules


def lambda_that(function: Any) -> Any:
    """A lambda has no name and no handler's signature; what it does is what matters here."""
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    source = f"def handler({', '.join(parameters)}): return function({', '.join(parameters)})"
    names: dict[str, Any] = {"function": function}
    exec(source, names)  # noqa: S102 - the test's own text
    return names["handler"]
