"""Signals: the handlers remember, the loop obeys. One table; the README shows the same one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from enum import Enum, auto
from time import monotonic

#: Two of the same within this are one press: a terminal and a wrapper both pass it on.
SAME_PRESS_SECONDS = 0.5


class Intent(Enum):
    """What a signal asks for."""

    DRAIN_AND_EXIT = auto()
    STOP_NOW = auto()
    RELOAD = auto()
    SAY_STATE = auto()


#: TERM twice stays a drain: orchestrators and wrappers send it twice. INT twice stops at once.
TABLE: dict[signal.Signals, tuple[Intent, Intent]] = {
    signal.SIGTERM: (Intent.DRAIN_AND_EXIT, Intent.DRAIN_AND_EXIT),
    signal.SIGINT: (Intent.DRAIN_AND_EXIT, Intent.STOP_NOW),
    signal.SIGQUIT: (Intent.STOP_NOW, Intent.STOP_NOW),
    signal.SIGHUP: (Intent.RELOAD, Intent.RELOAD),
    signal.SIGUSR2: (Intent.SAY_STATE, Intent.SAY_STATE),
}


class Signals:
    """What was asked for by signals and not obeyed yet."""

    def __init__(self, wake: Callable[[], None], terminal: bool) -> None:
        self._wake = wake
        self._asked: list[tuple[signal.Signals, Intent]] = []
        self._last: dict[signal.Signals, float] = {}
        self._terminal = terminal
        loop = asyncio.get_running_loop()
        for number in TABLE:
            loop.add_signal_handler(number, self._remember, number)

    def take(self) -> list[tuple[signal.Signals, Intent]]:
        """In the order in which they came, once."""
        asked, self._asked = self._asked, []
        return asked

    def hold(self) -> None:
        """From now on signals wait: else, once the loop has ended, one could kill us on the way."""
        signal.pthread_sigmask(signal.SIG_BLOCK, TABLE)

    def _remember(self, number: signal.Signals) -> None:
        now = monotonic()
        before = self._last.get(number)
        if before is not None and now - before < SAME_PRESS_SECONDS:
            return
        self._last[number] = now
        first, again = TABLE[number]
        intent = first if before is None else again
        if number is signal.SIGHUP and self._terminal:
            intent = Intent.DRAIN_AND_EXIT  # the terminal was closed
        self._asked.append((number, intent))
        self._wake()
