"""The jobs of examples/once, whose world stops at each step until the test lets it go on.

Steps of a thumbnail: render (before the effect), send, sent (before it is said), end. Of a charge:
begin, charge (behind the mark), charged, book (behind the effect).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from once import jobs, world

import jobctl

__all__ = ["jobs"]  # what they declare is what the host runs

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])


def step(name: str) -> None:
    """Says that it is here, and goes on when the test lets it."""
    with (FOLDER / f"{name}.here").open("a") as file:
        file.write(f"{os.getpid()}\n")
    while not (FOLDER / f"{name}.go").exists():
        time.sleep(0.01)


def _around(what: Callable[..., Any], before: str | None, after: str | None) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            step(before)
        done = what(*args, **kwargs)
        if after is not None:
            step(after)
        return done

    return wrapped


world.gallery.render = _around(world.gallery.render, "render", None)  # type: ignore[method-assign]
world.mail.send = _around(world.mail.send, "send", "sent")  # type: ignore[method-assign]
world.bank.charge = _around(world.bank.charge, "charge", "charged")  # type: ignore[method-assign]
_effect, _transaction = jobctl.Context.effect, jobctl.Context.transaction


def _begin(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
    if key.startswith("charge:"):
        step("begin")
    return _effect(self, key, *args, **kwargs)


def _book(self: Any) -> Any:
    step("book")
    return _transaction(self)


jobctl.Context.effect = _begin  # type: ignore[method-assign]
jobctl.Context.transaction = _book  # type: ignore[method-assign]
