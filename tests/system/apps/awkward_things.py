"""Results and errors that resist being kept. Each case is called in a slot."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any, NoReturn


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class _ExitsWhenPrinted(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class _PrintsNothingOfKind(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class _LongName(Exception):
    pass


_LongName.__name__ = _LongName.__qualname__ = "E" * 100_000


class _Evil(BaseException):
    def __getattribute__(self, name: str) -> Any:
        raise ValueError(f"no {name}")


def _raise(error: BaseException) -> Callable[[], NoReturn]:
    def case() -> NoReturn:
        raise error

    return case


def _deep_list() -> Any:
    made: list[Any] = []
    for _ in range(100_000):
        made = [made]
    return made


def _circle() -> Any:
    made: dict[str, Any] = {}
    made["me"] = made
    return made


def _deep_recursion() -> Any:
    return _deep_recursion()


def _circle_of_causes() -> NoReturn:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    raise one


def _long_chain() -> NoReturn:
    error = ValueError("0")
    for number in range(1, 5000):
        following = ValueError(str(number))
        following.__cause__ = error
        error = following
    raise error


def _wide_group() -> NoReturn:
    raise ExceptionGroup("many", [ValueError("x" * 1000) for _ in range(5000)])


def _deep_group() -> NoReturn:
    group: Exception = ValueError("inside")
    for _ in range(500):
        group = ExceptionGroup("outside", [group])
    raise group


def _many_notes() -> NoReturn:
    error = ValueError("noted")
    for _ in range(2000):
        error.add_note("n" * 1000 + "\0\ud800")
    raise error


def _odd_code() -> NoReturn:
    error = ValueError("coded")
    error.code = "\0" * 500 + "\ud800"  # type: ignore[attr-defined]
    raise error


RESULTS: dict[str, Callable[[], Any]] = {
    "result nan": lambda: float("nan"),
    "result infinity": lambda: [1.0, float("inf")],
    "result nul": lambda: {"text": "a\0b"},
    "result nul key": lambda: {"a\0b": 1},
    "result surrogate": lambda: ["\ud83d"],
    "result bytes": lambda: b"\xff",
    "result object": object,
    "result set": lambda: {1, 2},
    "result date": lambda: datetime.date(2024, 1, 1),
    "result decimal": lambda: decimal.Decimal("1.5"),
    "result class": lambda: int,
    "result deep": _deep_list,
    "result circle": _circle,
    "result huge": lambda: "x" * (64 * 2**20),
    "result wide": lambda: list(range(3_000_000)),
    "result huge number": lambda: 10**5000,
    "result int keys": lambda: {1: 1, "1": 2},
    "result generator": lambda: (number for number in range(3)),
}

ERRORS: dict[str, Callable[[], Any]] = {
    "error unprintable": _raise(_Unprintable()),
    "error exits": _raise(_ExitsWhenPrinted()),
    "error not text": _raise(_PrintsNothingOfKind()),
    "error long name": _raise(_LongName("x")),
    "error evil": _raise(_Evil("evil")),
    "error huge": _raise(ValueError("x" * (50 * 2**20))),
    "error nul": _raise(ValueError("a\0b\ud800")),
    "error bytes": _raise(ValueError(b"\xff\x00" * 100_000)),
    "error recursion": _deep_recursion,
    "error circle": _circle_of_causes,
    "error chain": _long_chain,
    "error wide group": _wide_group,
    "error deep group": _deep_group,
    "error notes": _many_notes,
    "error code": _odd_code,
    "error exit": _raise(SystemExit("\0" * 1000)),
    "error interrupt": _raise(KeyboardInterrupt()),
    "error generator exit": _raise(GeneratorExit()),
    "error memory": _raise(MemoryError()),
    "error stop": _raise(StopIteration(5)),
}

CASES = {**RESULTS, **ERRORS}
