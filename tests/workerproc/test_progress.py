"""Progress in the page: what may be said, what is read, and what it costs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.workerproc.context import Context, Token
from jobctl.workerproc.page import SIZE, Page
from jobctl.workerproc.progress import PHASE_LIMIT, RECORD_LIMIT, read, record
from tests.exploring import explore


@pytest.fixture
def ends() -> Iterator[tuple[Page, Page]]:
    """The slot's end of a page and the supervisor's."""
    descriptor = Page.create("test")
    slot, supervisor = Page(descriptor), Page(descriptor)
    os.close(descriptor)
    yield slot, supervisor
    slot.close()
    supervisor.close()


def _said(page: Page) -> dict[str, Any] | None:
    said = page.progress()
    return None if said is None else read(said.body)


def test_the_newest_is_read(ends: tuple[Page, Page]) -> None:
    """With whose it is, and when it was said."""
    slot, supervisor = ends
    assert supervisor.progress() is None
    ctx = Context(type="t", token=Token(1, 42), _page=slot)
    for done in range(5):
        ctx.progress("rendering", done=done, total=4)
        assert _said(supervisor) == {"phase": "rendering", "done": done, "total": 4}
    said = supervisor.progress()
    assert said is not None and said.token == 42
    assert 0 <= time.monotonic_ns() - said.at_ns < 60e9
    ctx.progress("done")
    assert _said(supervisor) == {"phase": "done"}


def test_a_record_that_is_torn(ends: tuple[Page, Page]) -> None:
    """Whoever is killed while it writes has said what it said before."""
    slot, supervisor = ends
    slot.note_progress(1, 1, record("first", None, None))
    slot.note_progress(1, 2, record("second", None, None))
    at = slot._memory.find(b"second")
    slot._memory[at : at + 3] = b"xxx"
    assert _said(supervisor) == {"phase": "first"}
    slot._memory[:SIZE] = bytes(SIZE)
    assert supervisor.progress() is None


@explore(200)
@given(st.binary(min_size=0, max_size=SIZE), st.integers(0, SIZE - 1))
def test_a_page_that_a_handler_has_scribbled_over(noise: bytes, at: int) -> None:
    """Whatever stands there: nothing is raised, and what comes out can be stored."""
    descriptor = Page.create("test")
    page = Page(descriptor)
    os.close(descriptor)
    try:
        page.note_progress(1, 1, record("x", 1, 2))
        noise = noise[: SIZE - at]
        page._memory[at : at + len(noise)] = noise
        said = page.progress()
        words = None if said is None else read(said.body)
        assert words in (None, {"phase": "x", "done": 1, "total": 2})
    finally:
        page.close()


@explore(300)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ).map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries(
            {"phase": st.text()},
            optional={"done": st.floats() | st.integers() | st.text(), "total": st.integers()},
        ).map(lambda value: json.dumps(value).encode()),
        st.just(b"[" * 700), st.just(b'{"phase": "x", "done": ' + b"9" * 900 + b"}"),
    )
)  # fmt: skip
def test_records_of_a_stranger(body: bytes) -> None:
    """What is believed of them is storable and bounded."""
    words = read(body)
    if words is not None:
        assert words.keys() <= {"phase", "done", "total"}
        assert len(words["phase"]) <= PHASE_LIMIT and "\0" not in words["phase"]
        words["phase"].encode()
        for name in words.keys() - {"phase"}:
            assert 0 <= words[name] < 2**63 and not isinstance(words[name], bool)
        json.dumps(words, allow_nan=False)


@explore(300)
@given(st.text(st.characters(), max_size=600), st.integers(0, 2**63 - 1) | st.floats(0, 1e18))
def test_every_phase_can_be_said(phase: str, done: float) -> None:
    """Surrogates, NUL and the longest text: made storable and cut, within the record's bound."""
    body = record(phase, done, None)
    assert len(body) <= RECORD_LIMIT
    words = read(body)
    assert words is not None and words["done"] == done
    assert len(words["phase"]) <= PHASE_LIMIT
    if phase.isascii() and "\0" not in phase and len(phase) <= PHASE_LIMIT:
        assert words["phase"] == phase


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("x", float("nan")), ValueError), (("x", float("inf")), ValueError),
        (("x", -1), ValueError), (("x", 1, -0.5), ValueError), (("x", 2**63), ValueError),
        (("x", "47"), TypeError), (("x", True), TypeError), (("x", 1, [2]), TypeError),
        ((b"x",), TypeError), ((None,), TypeError),
    ],
)  # fmt: skip
def test_what_counts_nothing_is_refused(arguments: Any, error: type[Exception]) -> None:
    """Where it is said, with what was wrong; also without a slot."""
    with pytest.raises(error, match=r"ctx\.progress: (phase|done|total)"):
        Context(type="t").progress(*arguments)


def test_more_than_there_is(ends: tuple[Page, Page]) -> None:
    """It is what the handler counts; nobody is failed for having counted wrongly."""
    Context(type="t", _page=ends[0]).progress("x", done=5, total=4)
    assert _said(ends[1]) == {"phase": "x", "done": 5, "total": 4}


def test_what_it_costs(ends: tuple[Page, Page]) -> None:
    """Some microseconds, whatever the rate: no call, no message, no statement."""
    ctx = Context(type="t", _page=ends[0])
    best = float("inf")
    for _ in range(20):
        begun = time.perf_counter()
        for done in range(1000):
            ctx.progress("rendering", done=done, total=1000)
        best = min(best, (time.perf_counter() - begun) / 1000)
    assert best < 100e-6, f"{best * 1e6:.1f} us"
