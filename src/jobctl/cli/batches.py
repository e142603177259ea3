"""Many jobs in batches: at a pace that was asked for, with a progress that somebody sees.

What a batch has done is done. Ctrl-C ends the command behind a batch, not within one, so that what
it says of how far it came is true; a second Ctrl-C ends it at once.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from time import monotonic
from types import FrameType
from typing import Any

import click

from jobctl.cli.moments import coarse
from jobctl.cli.output import say
from jobctl.store.operating import BATCH

#: Where nobody looks at a terminal, a line so often.
LINE_SECONDS = 10.0
_BAR = 30


class Batches:
    """Cuts ids into batches. Iterate within `with`; `stopped` says whether Ctrl-C ended it."""

    def __init__(self, many: int, rate: float | None) -> None:
        self.stopped = False
        self._many = many
        self._rate = rate
        self._size = BATCH if rate is None else max(1, min(BATCH, round(rate)))
        self._done = 0
        self._begun = self._said = monotonic()
        self._napping = False
        self._before: Any = None
        self._on_terminal = sys.stderr.isatty()

    def __enter__(self) -> Batches:
        self._begun = self._said = monotonic()
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._on_terminal and self._many > self._size:
            click.echo("", err=True)

    def of(self, ids: Sequence[int]) -> Iterator[Sequence[int]]:
        """The next batches, until there are none or somebody wants it to end."""
        for start in range(0, len(ids), self._size):
            self._keep_pace()
            if self.stopped:
                return
            batch = ids[start : start + self._size]
            yield batch
            self._done += len(batch)
            self._tell()

    def _keep_pace(self) -> None:
        if self._rate is None:
            return
        wait = self._begun + self._done / self._rate - monotonic()
        if wait <= 0:
            return
        try:
            self._napping = True
            time.sleep(wait)  # the pace that --rate asks for
        except KeyboardInterrupt:
            self.stopped = True
        finally:
            self._napping = False

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._napping or self.stopped:
            raise KeyboardInterrupt
        self.stopped = True

    def _tell(self) -> None:
        if self._many <= self._size:
            return
        now = monotonic()
        left = (self._many - self._done) * (now - self._begun) / self._done
        words = f"{self._done} of {self._many}" + (f", {coarse(left)} left" if left else "")
        if self._on_terminal:
            full = _BAR * self._done // self._many
            bar = "#" * full + "." * (_BAR - full)
            click.echo(f"\r[{bar}] {words}\x1b[K", nl=False, err=True)
        elif now - self._said >= LINE_SECONDS:
            self._said = now
            say(words)
