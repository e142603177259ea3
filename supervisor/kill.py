"""Ending one process by force, without ever waiting for it.

The order is the point. What the slot has already said has been read before this begins; then it is
marked, and its later words lose (a signal can wake a hung call and bring a late "done"); then its
C-level handler dumps the stacks of all threads, which works while C code holds the interpreter;
then the whole group dies. A process that does not die is given up: it gets no job, and its
replacement need not wait for it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass

from jobctl.supervisor.listener import Reason
from jobctl.supervisor.slot import Slot, Stage


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds."""

    dump_grace: float = 1.0  # for the dump to come
    dump_quiet: float = 0.05  # without growth: it is whole
    unkillable_after: float = 5.0


class Kill:
    """One kill of one slot."""

    def __init__(
        self,
        slot: Slot,
        reason: Reason,
        why: str,
        loop: asyncio.AbstractEventLoop,
        patience: Patience,
        give_up: Callable[[Slot], None],
    ) -> None:
        self.reason = reason
        self.why = why
        self._slot = slot
        self._loop = loop
        self._patience = patience
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None
        self._latest = 0.0

    def begin(self, *, dump: bool) -> None:
        """From now on whatever the slot says loses."""
        slot = self._slot
        slot.stage = Stage.KILLING
        slot.stop_listening()
        if not dump or slot.pidfd < 0:
            self.strike()
            return
        self._latest = self._loop.time() + self._patience.dump_grace
        slot.stack.start_over()
        slot.stack.on_growth = self._dump_grew
        slot.send_signal(signal.SIGUSR2)
        self._set_timer(self._latest, self.strike)

    def strike(self) -> None:
        """SIGKILL. Called again when the pid of a slot that was just being born is known."""
        self._slot.stack.on_growth = None
        self._slot.strike()
        self._set_timer(
            self._loop.time() + self._patience.unkillable_after, self._give_up, self._slot
        )

    def over(self) -> None:
        """The process is dead."""
        self._slot.stack.on_growth = None
        if self._timer is not None:
            self._timer.cancel()

    def _dump_grew(self) -> None:
        quiet = self._loop.time() + self._patience.dump_quiet
        self._set_timer(min(quiet, self._latest), self.strike)

    def _set_timer(self, when: float, then: Callable[..., None], *arguments: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, then, *arguments)
