"""What a slot may say about how an attempt ended; anything else is not believed.

An ENDED frame comes from a process that runs strangers' code, and what passes here goes into a
batch with other jobs' outcomes. So every field is of its kind, bounded, and can be stored.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from jobctl.workerproc.frames import FrameError
from jobctl.workerproc.said import EFFECT_RESULTS

#: Beyond what the slot's own limits allow, with room for their being raised.
TEXT_LIMIT: Final = 256 * 1024
RESULT_LIMIT: Final = 4 * 1024 * 1024
STEPS_LIMIT: Final = 4 * 1024 * 1024
MOST_COUNTED: Final = 10**9
LONGEST_SECONDS: Final = 101 * 366 * 86_400.0

_TEXTS = ("error_class", "error_code", "error", "stack", "why")
_SECONDS = ("retry_after_seconds", "snooze_seconds")
_NEEDED = {"failed": ("error_class", "error"), "timeout": ("error",)}
_OUTCOMES = frozenset({"succeeded", "failed", "timeout", "snoozed", "cancelled", "unrunnable"})


def check_ending(body: dict[str, Any], token: int, not_before_ns: int, now_ns: int) -> None:
    """Raises FrameError, saying which field is wrong, unless this is how that claim ended."""
    outcome = body.get("outcome")
    if not isinstance(outcome, str) or outcome not in _OUTCOMES:
        raise FrameError(f"an attempt cannot end as {str(outcome)[:40]!r}")
    if body.get("token") != token:
        raise FrameError("the end of another claim was reported")
    check_times(body.get("started_ns"), body.get("ended_ns"), not_before_ns, now_ns)
    for name in _TEXTS:
        text = body.get(name)
        if text is not None:
            _check_text(name, text, TEXT_LIMIT)
        elif name in _NEEDED.get(outcome, ()):
            raise FrameError(f"an attempt ended as {outcome} without {name}")
    for name in _SECONDS:
        seconds = body.get(name)
        if seconds is not None:
            _check_seconds(name, seconds)
    if body.get("result") is not None:
        _check_text("result", body["result"], RESULT_LIMIT)
    if body.get("effects") is not None:
        _check_counts("effects", body["effects"], EFFECT_RESULTS)
    for name in ("permanent", "hook_failed", "hold_limit"):
        if not isinstance(body.get(name, False), bool):
            raise FrameError(f"{name} is neither true nor false")
    if body.get("steps") is not None:
        _check_text("steps", body["steps"], STEPS_LIMIT)
        if outcome != "succeeded":
            raise FrameError(f"an attempt ended as {outcome} with next steps")
    if outcome == "snoozed" and body.get("snooze_seconds") is None:
        raise FrameError("an attempt was snoozed without saying for how long")


def check_times(started_ns: object, ended_ns: object, not_before_ns: int, now_ns: int) -> None:
    """Raises FrameError unless it started and ended, in this order, since it was given."""
    if type(started_ns) is not int or type(ended_ns) is not int:
        raise FrameError("an attempt's times are not numbers")
    if not not_before_ns <= started_ns <= ended_ns <= now_ns:
        raise FrameError("an attempt's times are impossible")


def _check_text(name: str, text: object, limit: int) -> None:
    if not isinstance(text, str):
        raise FrameError(f"{name} is not text")
    if len(text) > limit:
        raise FrameError(f"{name} has {len(text)} characters, more than {limit}")
    if "\0" in text:
        raise FrameError(f"{name} has a NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FrameError(f"{name} has half a character") from error


def _check_counts(name: str, counts: object, words: Collection[str]) -> None:
    if not isinstance(counts, dict) or not counts.keys() <= set(words):
        raise FrameError(f"{name} counts what is not known")
    if any(type(count) is not int or not 0 <= count <= MOST_COUNTED for count in counts.values()):
        raise FrameError(f"{name} has a count that is out of range")


def _check_seconds(name: str, seconds: object) -> None:
    if type(seconds) is not int and type(seconds) is not float:
        raise FrameError(f"{name} is not a number")
    if not 0 <= seconds <= LONGEST_SECONDS:  # NaN is neither
        raise FrameError(f"{name} is out of range")
