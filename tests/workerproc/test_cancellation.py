"""What a handler sees of a cancel, and what is wrong with what stands beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jobctl
from jobctl.workerproc import frames
from jobctl.workerproc.attempt import Attempts
from jobctl.workerproc.beside import check_hook, check_upgrade
from jobctl.workerproc.cancellation import Cancellation
from jobctl.workerproc.frames import Done, Job, Kind
from jobctl.workerproc.page import Page
from jobctl.workerproc.registry import Registry
from tests.exploring import explore

TOKEN = 42


@pytest.fixture
def page() -> Iterator[Page]:
    descriptor = Page.create("test")
    page = Page(descriptor)
    os.close(descriptor)
    yield page
    page.close()


def test_only_what_is_meant_for_this_claim(page: Page) -> None:
    """Somebody else's request is nobody's business here; one of this claim's stays."""
    mine = Cancellation(page, TOKEN, has_commit_point=False)
    page.aim_cancel(41)
    mine.check()
    assert not mine.requested
    page.aim_cancel(TOKEN)
    assert mine.requested
    for _ in range(2):
        with pytest.raises(jobctl.Cancelled):
            mine.check()


def test_the_commit_point(page: Page) -> None:
    """The last safe point, marked for whoever kills; of a type without one it is like any other."""
    anywhere = Cancellation(page, TOKEN, has_commit_point=False)
    anywhere.commit_point()
    assert page.committed() == 0
    before = Cancellation(page, TOKEN, has_commit_point=True)
    before.commit_point()
    assert page.committed() == TOKEN
    page.aim_cancel(TOKEN)
    before.check()
    before.commit_point()
    assert before.requested
    with pytest.raises(jobctl.Cancelled):
        anywhere.commit_point()


def test_a_commit_point_that_is_reached_too_late(page: Page) -> None:
    """It raises, and leaves no mark: force may still end it."""
    page.aim_cancel(TOKEN)
    late = Cancellation(page, TOKEN, has_commit_point=True)
    with pytest.raises(jobctl.Cancelled):
        late.commit_point()
    assert page.committed() == 0


def test_a_context_of_a_test_is_never_cancelled() -> None:
    """Handlers are called in tests with a context that nobody else knows."""
    ctx = jobctl.Context(type="t")
    ctx.check()
    ctx.commit_point()
    assert not ctx.cancelled


# Arguments of older versions --------------------------------------------------------------------


class Code:
    """One version of an application: a type that takes what its version says."""

    def __init__(self, patch: pytest.MonkeyPatch, page: Page) -> None:
        self.registry = Registry()
        patch.setattr("jobctl.workerproc.job.registry", self.registry)
        self.attempts = Attempts(self.registry, page)

    def run(self, version: int, args: bytes, name: str = "resize") -> Any:
        answer = self.attempts.run(
            Job(1, 1, TOKEN, 1, 5, version, 60.0, 0.0, name, "default", None, None, args)
        )
        if frames.kind_of(answer) is Kind.DONE:
            return frames.unpack_done(answer)
        return frames.unpack(answer)


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch, page: Page) -> Code:
    return Code(monkeypatch, page)


step = st.tuples(st.sampled_from(("rename", "add", "drop")), st.integers(0, 3))


@explore(60)
@given(steps=st.lists(step, max_size=6), start=st.integers(1, 7), size=st.integers())
def test_a_chain_of_versions(steps: list[tuple[str, int]], start: int, size: int) -> None:
    """Whatever changed between versions: arguments of any older one arrive as if each change had
    been made to them one after the other, and those of the newest untouched."""
    newest = len(steps) + 1
    start = min(start, newest)

    def change(args: dict[str, Any], number: int) -> None:
        kind, which = steps[number - 1]
        if kind == "rename" and f"a{which}" in args:
            args[f"r{number}"] = args.pop(f"a{which}")
        elif kind == "add":
            args[f"n{number}"] = number
        elif kind == "drop":
            args.pop(f"a{which}", None)

    asked: list[int] = []

    def upgrade(args: dict[str, Any], version: int) -> dict[str, Any]:
        asked.append(version)
        for number in range(version, newest):
            change(args, number)
        return args

    seen: list[dict[str, Any]] = []

    def resize(ctx: jobctl.Context, **args: Any) -> None:
        seen.append(args)

    expected: dict[str, Any] = {"a0": size, "a1": "x"}
    for number in range(start, newest):
        change(expected, number)
    with pytest.MonkeyPatch.context() as patch:
        descriptor = Page.create("test")
        page = Page(descriptor)
        os.close(descriptor)
        code = Code(patch, page)
        jobctl.job(schema_version=newest, upgrade=upgrade)(resize)
        done = code.run(start, b'{"a0": %d, "a1": "x"}' % size)
        page.close()
    assert isinstance(done, Done)
    assert seen == [expected]
    assert asked == ([start] if start < newest else [])


@pytest.mark.parametrize(
    ("upgrade", "sentence"),
    [
        (lambda args, version: 1 / 0, "from version 1 to 2: ZeroDivisionError"),
        (lambda args, version: None, "from version 1 to 2: TypeError: upgrade returned NoneType"),
        (lambda args, version: {"high": 1}, "from version 1 to 2: TypeError: resize cannot be"),
        (lambda args, version: sys.exit(3), "SystemExit: 3"),
    ],
)
def test_an_upgrade_that_fails(code: Code, upgrade: Callable[..., Any], sentence: str) -> None:
    """For good, and it says from where to where; the handler is not called."""

    def resize(ctx: jobctl.Context, width: int) -> None:
        raise AssertionError("called")

    jobctl.job(schema_version=2, upgrade=upgrade)(resize)
    body = code.run(1, b'{"size": 1}')
    assert (body["outcome"], body["permanent"]) == ("failed", True)
    assert body["error_class"] == "upgrade_failed"
    assert sentence in body["error"]


def test_a_hook_is_called_like_the_handler(code: Code, page: Page) -> None:
    """After a Cancelled that the handler lets through, whoever raised it; its failure is told."""
    called: list[tuple[int, bool]] = []

    def give_back(ctx: jobctl.Context, seat: int, **rest: Any) -> None:
        called.append((seat, ctx.cancelled))
        ctx.check()
        if seat == 13:
            raise RuntimeError("the bank is closed")

    def book(ctx: jobctl.Context, seat: int, row: int = 0) -> None:
        raise jobctl.Cancelled

    jobctl.job(on_cancel=give_back)(book)
    page.aim_cancel(TOKEN)
    body = code.run(1, b'{"seat": 1, "row": 2}', "book")
    assert body["outcome"] == "cancelled" and "hook_failed" not in body
    body = code.run(1, b'{"seat": 13}', "book")
    assert (body["outcome"], body["hook_failed"]) == ("cancelled", True)
    assert "the bank is closed" in body["error"]
    assert called == [(1, True), (13, True)]


# Said at import ---------------------------------------------------------------------------------


def _handler(ctx: jobctl.Context, seat: int, row: int = 0) -> None: ...


def _other(ctx: jobctl.Context, seat: int) -> None: ...


def _needs_row(ctx: jobctl.Context, seat: int, row: int) -> None: ...


def _nothing() -> None: ...


def _generator(ctx: jobctl.Context, **args: Any) -> Iterator[int]:
    yield 1


async def _later(args: Any, version: int) -> Any: ...


@pytest.mark.parametrize(
    ("hook", "sentence"),
    [
        ("give_back", "must be a function"),
        (_nothing, "must take what the handler takes"),
        (_other, "cannot take row"),
        (_needs_row, "give it a default"),
        (_generator, "is a generator"),
    ],
)
def test_a_hook_that_cannot_be_called(hook: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_hook(hook, _handler)
    with pytest.raises(jobctl.DeclarationError, match=sentence):
        jobctl.job(name="never", on_cancel=hook)(_handler)


@pytest.mark.parametrize(
    ("upgrade", "sentence"),
    [
        ("newer", "must be a function"),
        (_later, "must be a plain function"),
        (lambda args: args, "is called with"),
    ],
)
def test_an_upgrade_that_cannot_be_called(upgrade: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_upgrade(upgrade)
