"""An alarm: wait until something happens or a moment comes. For one waiter."""

from __future__ import annotations

import asyncio


class Alarm:
    """Set from callbacks of the loop; what is set while nobody waits is not forgotten."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wakes the waiter, or the next one at once."""
        self._set = True
        self._wake()

    async def wait(self, until: float) -> bool:
        """Until it is set (True) or the loop's clock reaches this (False); then it is unset."""
        if not self._set and until > self._loop.time():
            self._waiter = self._loop.create_future()
            timer = self._loop.call_at(until, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        was_set, self._set = self._set, False
        return was_set

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
