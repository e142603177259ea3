"""Waiting for facts: the only place in the tests that naps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Fact = TypeVar("Fact")

NAP = 0.01


def until(condition: Callable[[], Fact], within: float = 10.0, what: str = "the condition") -> Fact:
    """Ask until the answer is true, and return it; AssertionError after `within` seconds.

    The limit is there to end a test that fails. Choose it large: a passing one never waits
    for it.
    """
    end = time.monotonic() + within
    while not (fact := condition()):
        assert time.monotonic() < end, f"{what}: not within {within:g} s, it is still {fact!r}"
        time.sleep(NAP)
    return fact
