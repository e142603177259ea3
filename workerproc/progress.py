"""Progress as it is written down: a short phase and two numbers, in JSON, within a bound.

One end is a handler, which may call as often as it likes: what it says is checked there, where it
can be mended. The other end reads the memory of a process that runs strangers' code, and believes
nothing of it.
"""

from __future__ import annotations

import json
import math
import operator
from json.encoder import encode_basestring
from typing import Any, Final

from jobctl.store.texts import storable

#: Characters of a phase; a longer one is cut.
PHASE_LIMIT: Final = 200
#: Bytes of a record: of every character an escape, and two numbers.
RECORD_LIMIT: Final = 1400
LARGEST: Final = 2**63 - 1

Number = int | float


def record(phase: str, done: Number | None, total: Number | None) -> bytes:
    """What a handler says, as it travels.

    The phase is made storable, whatever it holds: it may quote a file's name. Raises TypeError and
    ValueError for what is no number of things: NaN, less than nothing.
    """
    if not isinstance(phase, str):
        raise TypeError(
            f"ctx.progress: phase must be text, not {type(phase).__name__}: "
            'ctx.progress("rendering", done=47, total=120)'
        )
    text = _phase(phase)
    words = f'{{"phase":{encode_basestring(text)}'
    if done is not None:
        words += f',"done":{_number("done", done)}'
    if total is not None:
        words += f',"total":{_number("total", total)}'
    return (words + "}").encode()


def read(body: bytes) -> dict[str, Any] | None:
    """What a record says, of nothing but storable values; None when it is none."""
    try:
        words = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(words, dict) or not isinstance(words.get("phase"), str):
        return None
    found: dict[str, Any] = {"phase": _phase(words["phase"])}
    for name in ("done", "total"):
        value = words.get(name)
        if (
            isinstance(value, int | float) and type(value) is not bool and 0 <= value <= LARGEST
        ):  # NaN is neither
            found[name] = value
    return found


def _phase(text: str) -> str:
    if not text.isascii() or "\0" in text:
        text = storable(text[: PHASE_LIMIT + 1], 8 * PHASE_LIMIT)
    return text if len(text) <= PHASE_LIMIT else f"{text[: PHASE_LIMIT - 1]}…"


def _number(name: str, value: object) -> str:
    if isinstance(value, bool):
        raise TypeError(f"ctx.progress: {name} must be a number, not {value}")
    if isinstance(value, float):
        if not math.isfinite(value) or not 0 <= value <= LARGEST:
            raise ValueError(f"ctx.progress: {name} must be 0 or more and finite, not {value!r}")
        return float.__repr__(value)
    try:
        whole = operator.index(value)  # type: ignore[arg-type]  # int and all that stands for one
    except TypeError:
        raise TypeError(
            f"ctx.progress: {name} must be a number, not {type(value).__name__}"
        ) from None
    if not 0 <= whole <= LARGEST:
        raise ValueError(f"ctx.progress: {name} must be 0 or more, and below 2**63")
    return int.__repr__(whole)
