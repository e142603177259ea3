"""Whatever an exception does, a record of it can be stored."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.store.texts import TEXT_LIMIT
from jobctl.workerproc.errors import Permanent
from jobctl.workerproc.failure import FRAME_LIMIT, Failure, describe


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def record(function: Callable[[], object]) -> Failure:
    failure = describe(caught(function))
    for text in (failure.error_class, failure.error_code or "", failure.error, failure.stack):
        assert type(text) is str
        assert len(text.encode()) <= TEXT_LIMIT
        assert "\0" not in text
    return failure


def fail(error: BaseException) -> NoReturn:
    raise error


def test_what_a_plain_one_leaves() -> None:
    """Class, message and a stack that ends where it broke."""

    def broken() -> None:
        dict[str, int]()["invoice_id"]

    failure = record(broken)
    assert failure.error_class == "KeyError"
    assert failure.error_code is None
    assert failure.error == "'invoice_id'"
    assert failure.stack.startswith("Traceback (most recent call last):\n")
    assert failure.stack.endswith("KeyError: 'invoice_id'")
    assert f'File "{__file__}"' in failure.stack
    assert "in test_what_a_plain_one_leaves.<locals>.broken\n" in failure.stack
    assert '["invoice_id"]' in failure.stack


def test_codes() -> None:
    """Ours, an application's own, and a database's."""

    class Declined(Exception):
        code = "DECLINED"

    class Http(Exception):
        code = 404

    class Grpc(Exception):
        def code(self) -> int:
            return 5

    assert record(lambda: fail(Permanent("x", code="OLD"))).error_code == "OLD"
    assert record(lambda: fail(Declined())).error_code == "DECLINED"
    assert record(lambda: fail(Http())).error_code == "404"
    assert record(lambda: fail(Grpc())).error_code is None
    assert record(lambda: fail(psycopg.errors.UniqueViolation("x"))).error_code == "23505"
    assert record(lambda: fail(ValueError())).error_code is None


def test_a_chain_is_told_as_python_tells_it() -> None:
    """The oldest first, with the words in between."""

    def chained() -> None:
        try:
            try:
                raise KeyError("first")
            except KeyError:
                raise TypeError("second")  # noqa: B904 - the context is what is meant
        except TypeError as error:
            raise ValueError("third") from error

    stack = record(chained).stack
    order = [
        "KeyError: 'first'",
        "During handling of the above exception",
        "TypeError: second",
        "direct cause of the following",
        "ValueError: third",
    ]
    assert [stack.index(words) for words in order] == sorted(stack.index(words) for words in order)

    def silenced() -> None:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second") from None

    assert "first" not in record(silenced).stack.replace('raise KeyError("first")', "")


def test_groups_are_told_with_their_members() -> None:
    """And notes, and depth and width have their limits."""
    inner = ValueError("one")
    inner.add_note("while reading page 5")
    stack = record(lambda: fail(ExceptionGroup("several", [inner, TypeError("two")]))).stack
    for words in ("several (2 sub-exceptions)", "ValueError: one", "page 5", "TypeError: two"):
        assert words in stack
    deep: Exception = ValueError("the bottom")
    for level in range(50):
        deep = ExceptionGroup(f"level {level}", [deep])
    assert "deeper than 5 groups" in record(lambda: fail(deep)).stack
    wide = ExceptionGroup("wide", [ValueError(str(n)) for n in range(1_000)])
    assert "990 more exceptions" in record(lambda: fail(wide)).stack
    tree: Exception = ValueError("leaf")
    for _ in range(4):
        tree = ExceptionGroup("tree", [tree] * 1 + [ValueError(str(n)) for n in range(200)])
    record(lambda: fail(tree))


def test_endless_things_end() -> None:
    """Recursion, long chains, circles."""

    def recursion() -> None:
        recursion()

    failure = record(recursion)
    assert failure.error_class == "RecursionError"
    assert "frames left out" in failure.stack
    assert failure.stack.count("File ") <= FRAME_LIMIT

    long: BaseException = ValueError("0")
    for n in range(1, 1_000):
        newer = ValueError(str(n))
        newer.__cause__, long = long, newer
    assert "the chain goes on" in record(lambda: fail(long)).stack

    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    stack = record(lambda: fail(one)).stack
    assert stack.count("ValueError: one") == 1

    group = ExceptionGroup("circle", [one])
    one.__context__ = group
    record(lambda: fail(group))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Exiting(Exception):
    def __str__(self) -> str:
        sys.exit(3)


class Recursive(Exception):
    def __str__(self) -> str:
        return str(self)


class NotText(Exception):
    def __str__(self) -> Any:
        return 5


class Meta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no module")


class Nameless(Exception, metaclass=Meta):
    pass


class Lying(Exception):
    """Every attribute that a printer might read is something else, or raises."""

    __notes__ = property(lambda self: fail(RuntimeError("notes")))
    __traceback__ = property(lambda self: "no traceback")
    __cause__ = property(lambda self: self)
    __context__ = property(lambda self: fail(SystemExit(1)))
    code = property(lambda self: fail(KeyboardInterrupt()))


class SlyText(str):
    def __str__(self) -> str:
        raise RuntimeError("sly")

    def replace(self, *_: Any) -> str:
        raise RuntimeError("sly")

    def encode(self, *_: Any) -> bytes:
        raise RuntimeError("sly")

    def __len__(self) -> int:
        return 0


class Sly(Exception):
    code = SlyText("CODE")

    def __str__(self) -> str:
        return SlyText("sly \0 text")


@pytest.mark.parametrize(
    "kind",
    [Unprintable, Exiting, Recursive, NotText, Nameless, Lying, Sly],
    ids=["unprintable", "exiting", "recursive", "not text", "nameless", "lying", "sly"],
)
def test_exceptions_that_misbehave(kind: type[BaseException]) -> None:
    """None of it gets out, and what can be told is told."""
    error = caught(lambda: fail(kind()))
    failure = describe(error)
    assert "test_failure" in failure.stack
    assert type(failure.error) is str
    assert failure.error_class


def test_what_an_unprintable_one_is_called() -> None:
    """The class is known even when nothing else is."""
    failure = record(lambda: fail(Unprintable()))
    assert failure.error_class == "Unprintable"
    assert "could not be printed" in failure.error
    sly = record(lambda: fail(Sly()))
    assert (sly.error, sly.error_code) == ("sly \u2400 text", "CODE")
    assert record(lambda: fail(Nameless("x"))).error_class == "Nameless"


def test_enormous_ones_are_cut() -> None:
    """Message, code, class and notes."""
    big = "x" * 10_000_000
    error = Permanent(big, code=big)
    error.add_note(big)
    failure = record(lambda: fail(error))
    assert "left out" in failure.error
    assert failure.error_code is not None
    assert len(failure.error_code) <= 200
    assert failure.stack.endswith("x")
    record(lambda: fail(type("N" * 100_000, (Exception,), {})()))


def test_secrets_are_masked() -> None:
    """In the message, and in the line of source that a stack shows."""
    failure = record(lambda: fail(ValueError("no route to postgresql://app:hunter2@db/shop")))
    assert "hunter2" not in failure.error
    assert "hunter2" not in failure.stack


def test_a_secret_at_the_edge_of_what_is_kept() -> None:
    """It is masked before the text is cut, so no half of one stays."""
    for before in range(8_000, 8_300, 7):
        text = "x" * before + " password=" + "hunter2" * 30 + " " + "y" * 30_000
        assert "hunter2" not in describe(ValueError(text)).error


def test_a_redaction_hook_of_ones_own() -> None:
    """Its word counts; when it breaks, nothing that it might have hidden comes out."""
    assert describe(ValueError("a b"), lambda text: text.replace("a", "-")).error == "- b"

    def broken(text: str) -> str:
        raise RuntimeError(text)

    failure = describe(ValueError("hunter2"), broken)
    assert "hunter2" not in repr(failure)
    assert "redaction hook" in failure.error
    assert "redaction hook" in describe(ValueError("x"), lambda text: None).error  # type: ignore[arg-type,return-value]


def test_deep_in_the_stack() -> None:
    """With hardly any room left it still answers."""
    answers = []

    def dive(error: BaseException) -> None:
        try:
            dive(error)
        except RecursionError:
            answers.append(describe(error))
            raise

    with pytest.raises(RecursionError):
        dive(Permanent("x", code="y"))
    assert all(isinstance(answer, Failure) for answer in answers)
    assert answers[-1].error_class == "Permanent"


@given(st.text(st.characters()), st.text(st.characters()) | st.integers())
def test_any_text_can_be_stored(message: str, code: object) -> None:
    """NULs and surrogates included."""
    error = Permanent(message)
    error.code = code  # type: ignore[assignment]
    record(lambda: fail(error))
