"""How far something is that takes a while: one line for a person, a few for a log.

On a terminal the line is written over and removed at the end; elsewhere a line is said when it has
changed, and not often. It goes to standard error, so what is printed can still be piped.
"""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import Self

import click

from jobctl.cli.output import say
from jobctl.cli.table import safe

#: Where nobody watches, this often at the most, and not before so long has passed.
LOG_SECONDS = 5.0


class Progress:
    """Shows what it is told, as long as the block lasts."""

    def __init__(self) -> None:
        self._watched = sys.stderr.isatty()
        self._shown = ""
        self._say_at = monotonic() + LOG_SECONDS

    def show(self, line: str) -> None:
        """This is how far it is now."""
        if line == self._shown:
            return
        if self._watched:
            click.echo(f"\r\x1b[K{safe(line)}", err=True, nl=False)
        elif monotonic() < self._say_at:
            return
        else:
            say(line)
            self._say_at = monotonic() + LOG_SECONDS
        self._shown = line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._watched and self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
