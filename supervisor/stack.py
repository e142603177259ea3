"""The stacks that a slot's C-level fault handler writes: on SIGUSR2, and when it crashes.

The last dump is kept, with the claim that was running when it came, so that a death can say where
it happened. A dump has no end mark; whoever asked for one waits until it has been quiet.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

#: A dump of all threads is rarely more than a few KiB; the first threads are the interesting ones.
LIMIT: Final = 64 * 1024


class Stack:
    """The reading end of one slot's dumps; owns the descriptor."""

    def __init__(
        self, descriptor: int, loop: asyncio.AbstractEventLoop, token: Callable[[], int]
    ) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = loop
        self._token = token
        self._dump = b""
        self._dump_token = 0
        self._open = True
        #: Called after each piece that arrives.
        self.on_growth: Callable[[], None] | None = None
        loop.add_reader(descriptor, self._readable)

    def start_over(self) -> None:
        """What comes from now on is a new dump."""
        self._read()
        self._dump = b""

    def text(self, token: int) -> str | None:
        """The last dump, if it was taken while that claim was running."""
        self._read()
        if not self._dump or self._dump_token != token:
            return None
        return self._dump.decode("utf-8", "backslashreplace").replace("\0", "␀").strip()

    def close(self) -> None:
        """Keeps the text."""
        if self._open:
            self._read()
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)

    def _readable(self) -> None:
        if self._read() and self.on_growth is not None:
            self.on_growth()

    def _read(self) -> bool:
        if not self._open:
            return False
        try:
            data = os.read(self._descriptor, LIMIT)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._descriptor)
            return False
        token = self._token()
        if token != self._dump_token:
            self._dump, self._dump_token = b"", token
        self._dump = (self._dump + data)[:LIMIT]
        return True
