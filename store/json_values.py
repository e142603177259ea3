"""JSON values, checked where they enter: what this lets through comes back as it went in.

One pass that writes the text while it checks, without recursion, and stops at the limit, so that
neither a deep nor an endless nor an enormous value costs more than the limit does. Nothing is
coerced: what JSON in PostgreSQL cannot hold exactly is refused with its path and what to do. The
two things that do not survive: a tuple comes back as a list, and -0.0 as 0.0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Decimal
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NamedTuple, NoReturn

from jobctl.store.errors import InvalidJob, UnstorableValue

MAX_ARGS_BYTES = 64 * 1024
MAX_RESULT_BYTES = 64 * 1024
MAX_DEPTH = 64
#: Some 4,200 digits: Python refuses to read more than 4,300.
_MAX_INT_BITS = 14_000
#: Above this, the setting is a mistake: a frame carries 64 MiB.
_HIGHEST_LIMIT = 16 * 1024 * 1024

_ADVICE = {
    "datetime": "pass value.isoformat() and read it with datetime.fromisoformat",
    "date": "pass value.isoformat() and read it with date.fromisoformat",
    "time": "pass value.isoformat() and read it with time.fromisoformat",
    "timedelta": "pass value.total_seconds()",
    "Decimal": "pass str(value) and read it with Decimal",
    "Fraction": "pass str(value) and read it with Fraction",
    "UUID": "pass str(value) and read it with UUID",
    "bytes": "store it elsewhere and pass a reference, or pass it in base64",
    "bytearray": "store it elsewhere and pass a reference, or pass it in base64",
    "memoryview": "store it elsewhere and pass a reference, or pass it in base64",
    "set": "pass sorted(value)",
    "frozenset": "pass sorted(value)",
    "generator": "pass list(value)",
    "complex": "pass [value.real, value.imag]",
}


def arguments_text(value: object, limit: int | None = None) -> str:
    """The JSON text, in ASCII, of a handler's arguments. `limit` is in bytes, as stored.

    Without one it is JOBCTL_MAX_ARGS_BYTES, or 64 KiB. Raises UnstorableValue.
    """
    if not isinstance(value, dict):
        raise UnstorableValue(
            "arguments", "$", f"must be a dict of names and values, not {_kind(value)}"
        )
    most = max_args_bytes() if limit is None else limit
    return _Writer(
        "arguments",
        most,
        "store the data elsewhere and pass a reference, or raise JOBCTL_MAX_ARGS_BYTES",
    ).write(value)


def result_text(value: object) -> str:
    """The JSON text, in ASCII, of a handler's result. Raises UnstorableValue."""
    advice = "store the data elsewhere and return a reference"
    return _Writer("result", MAX_RESULT_BYTES, advice).write(value)


def value_text(value: object) -> str:
    """The JSON text, in ASCII, of what an effect returned. Raises UnstorableValue."""
    advice = "store the data elsewhere and keep a reference"
    return _Writer("value of the effect", MAX_RESULT_BYTES, advice).write(value)


def max_args_bytes() -> int:
    """JOBCTL_MAX_ARGS_BYTES, or 64 KiB. Raises InvalidJob when it is not a sensible number."""
    given = os.environ.get("JOBCTL_MAX_ARGS_BYTES")
    if not given:
        return MAX_ARGS_BYTES
    if given.isascii() and given.isdigit() and len(given) < 10 and 0 < int(given) <= _HIGHEST_LIMIT:
        return int(given)
    raise InvalidJob(
        f"JOBCTL_MAX_ARGS_BYTES is {given[:40]!r}; it must be a number of bytes from 1 to "
        f"{_HIGHEST_LIMIT}"
    )


class _Level(NamedTuple):
    """An array or object that is being written."""

    container: Any
    items: Iterator[Any]
    closing: str


class _Writer:
    """Writes one value. `_steps` holds the key or index that each open level stands at."""

    def __init__(self, what: str, limit: int, advice: str) -> None:
        self._what = what
        self._limit = limit
        self._advice = advice
        self._pieces: list[str] = []
        self._size = 0
        self._levels: list[_Level] = []
        self._steps: list[str | int] = []

    def write(self, value: object) -> str:
        self._begin(value)
        while self._levels:
            level = self._levels[-1]
            try:
                item = next(level.items)
            except StopIteration:
                self._add(level.closing)
                self._levels.pop()
                self._steps.pop()
            except RuntimeError as error:
                self._refuse(f"changed while it was read: {error}")
            else:
                self._next_item(level, item)
        return "".join(self._pieces)

    def _next_item(self, level: _Level, item: Any) -> None:
        first = self._pieces[-1] in ("[", "{")
        if not first:
            self._add(", ", counted=2)
        if level.closing == "]":
            self._steps[-1] = self._steps[-1] + 1 if isinstance(self._steps[-1], int) else 0
            self._begin(item)
            return
        key, value = item
        if not isinstance(key, str):
            self._steps[-1] = f"{key!r:.60}"
            self._refuse(
                f"has a key that is {_kind(key)}, and JSON has only text for keys: pass str(key)"
            )
        self._steps[-1] = str(key)
        self._text(key)
        self._add(": ")
        self._begin(value)

    def _begin(self, value: object) -> None:
        """Writes a scalar, or opens a container."""
        if value is None:
            self._add("null")
        elif isinstance(value, str):
            self._text(value)
        elif isinstance(value, bool):
            self._add("true" if value else "false")
        elif isinstance(value, int):
            if value.bit_length() > _MAX_INT_BITS:
                self._refuse("is a number of more than 4,200 digits: pass it as hexadecimal text")
            self._add(int.__repr__(value))
        elif isinstance(value, float):
            self._float(value)
        elif isinstance(value, dict):
            self._open(value, iter(value.items()), "{", "}")
        elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            self._open(value, iter(value), "[", "]")
        else:
            self._refuse(f"is {_kind(value)}, which JSON cannot hold: {_advice(value)}")

    def _open(self, container: Any, items: Iterator[Any], opening: str, closing: str) -> None:
        if any(level.container is container for level in self._levels):
            self._refuse("contains itself: pass a tree, with ids for what refers back")
        if len(self._levels) >= MAX_DEPTH:
            self._refuse(f"lies deeper than {MAX_DEPTH} levels: pass a flatter value")
        self._add(opening)
        self._levels.append(_Level(container, items, closing))
        self._steps.append(-1 if closing == "]" else "")

    def _text(self, text: str) -> None:
        if text.isascii() and "\x7f" not in text:  # DEL is escaped here and stored as it is
            if "\0" in text:
                self._refuse_nul()
            self._add(encode_basestring_ascii(text))
            return
        if len(text) > self._limit:
            self._refuse_size()  # before it is encoded: a character has at least a byte
        try:
            stored = len(encode_basestring(text).encode())
        except UnicodeEncodeError:
            self._refuse(
                "has a lone surrogate, which is half a character: decode the text with "
                "errors='replace'"
            )
        if "\0" in text:
            self._refuse_nul()
        self._add(encode_basestring_ascii(text), counted=stored)

    def _float(self, value: float) -> None:
        shown = float.__repr__(value)
        if shown in ("nan", "inf", "-inf"):
            self._refuse(f"is {shown}, and JSON has no such number: pass None, or leave it out")
        if "e" in shown:
            # PostgreSQL stores decimals and writes them out; without the fraction a float such as
            # 1e23 would come back as an int, and as another number.
            exact = format(Decimal(shown), "f")
            shown = exact if "." in exact else f"{exact}.0"
        self._add(shown)

    def _add(self, piece: str, counted: int | None = None) -> None:
        self._size += len(piece) if counted is None else counted
        if self._size > self._limit:
            self._refuse_size()
        self._pieces.append(piece)

    def _refuse_size(self) -> NoReturn:
        raise UnstorableValue(
            self._what, "$", f"has more than {self._limit} bytes as JSON: {self._advice}"
        )

    def _refuse_nul(self) -> NoReturn:
        self._refuse(
            "has the character NUL (\\u0000), which PostgreSQL cannot store: remove it, or pass "
            "the bytes in base64"
        )

    def _refuse(self, why: str) -> NoReturn:
        raise UnstorableValue(self._what, self._path(), why)

    def _path(self) -> str:
        parts = ["$"]
        for level, step in zip(self._levels, self._steps, strict=True):
            if level.closing == "]":
                parts.append(f"[{step}]")
            elif isinstance(step, str) and step.isidentifier() and len(step) <= 60:
                parts.append(f".{step}")
            else:
                parts.append(f"[{encode_basestring_ascii(str(step)[:60])}]")
        path = "".join(parts)
        return path if len(path) <= 300 else f"{path[:150]}...{path[-145:]}"


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def _advice(value: object) -> str:
    for kind in type(value).__mro__:
        if kind.__name__ in _ADVICE:
            return _ADVICE[kind.__name__]
        if kind.__name__ == "Enum":
            return "pass value.value"
    if hasattr(value, "_fields"):
        return "pass value._asdict()"
    if hasattr(value, "__dataclass_fields__"):
        return "pass dataclasses.asdict(value)"
    if hasattr(value, "__fspath__"):
        return "pass str(value)"
    if hasattr(value, "dtype") or hasattr(value, "__array__"):
        return "pass value.item() of a single number, value.tolist() of an array"
    return "pass plain values, or the id of a record"
