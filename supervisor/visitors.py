"""Whoever is connected to one of a supervisor's servers: a few at most, and gone when it closes.

The rule: a visitor who is slow, leaves in the middle or is one too many costs nothing but a place.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable


class Visitors:
    """Gives each connection to `converse`, in the task that asyncio's server has made for it."""

    def __init__(
        self, converse: Callable[[StreamReader, StreamWriter], Awaitable[None]], most: int
    ) -> None:
        self._converse = converse
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """What asyncio's server calls."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a callback of asyncio's server runs in a task
        self._tasks.add(task)
        try:
            if len(self._tasks) <= self._most:
                await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # they have gone, or are too slow, or we stop
        finally:
            self._tasks.discard(task)
            writer.close()

    async def send_away(self) -> None:
        """Returns when nobody is left; whoever still waits for an answer is cut off."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
