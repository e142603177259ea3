"""Deadlines: when a running attempt is asked to stop, and when it is made to.

Counted by CLOCK_MONOTONIC from the handler's start, which the slot notes in the page that it
shares with us. One alarm for all slots, set to the first thing due; a job with hours to go costs
one comparison. The alarm asks the page only when it rings: until then a job counts as started when
it was given, which is never later.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from jobctl.supervisor.listener import Reason

if TYPE_CHECKING:
    from jobctl.supervisor.fleet import Fleet
    from jobctl.supervisor.slot import Running, Slot

_SECOND: Final = 1_000_000_000
#: A soft time-out that was swallowed is sent again after this, and then ever more rarely.
SOFT_REPEAT_NS: Final = _SECOND
#: One that is past its commit point is not killed for a cancel; it may yet turn out not to be.
FORCE_REPEAT_NS: Final = _SECOND
#: An alarm this late means that this process itself stood still - stopped, frozen, its machine
#: paused - and so, most likely, did the slots: they get a moment to say what they have done.
STALLED_NS: Final = 2 * _SECOND
STALL_GRACE_NS: Final = _SECOND


class Deadlines:
    """Watches what the slots of one fleet run. Works by itself once it exists."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns: int | float = float("inf")
        self._grace_until_ns = 0
        fleet.watch = self.watch  # type: ignore[method-assign]  # the one hook that every job takes

    def watch(self, running: Running) -> None:
        """A job was given. Called for every job, so the common case is one comparison."""
        due = running.given_ns + int((running.soft_seconds or running.hard_seconds) * _SECOND)
        if due < self._due_ns:
            self._set_alarm(due)

    def force(self, running: Running, due_ns: int) -> None:
        """What runs is killed for a cancel from then on, if it has not ended by itself."""
        running.force_due_ns = due_ns
        if due_ns < self._due_ns:
            self._set_alarm(due_ns)

    def enforce(self, now_ns: int) -> None:
        """Sends the soft time-outs and does the kills that are due."""
        if now_ns - self._due_ns > STALLED_NS:
            self._grace_until_ns = now_ns + STALL_GRACE_NS
        if now_ns < self._grace_until_ns:
            self._set_alarm(self._grace_until_ns)
            return
        for slot in self._fleet.busy():
            running = slot.running
            if running is None:
                continue
            try:
                self._enforce(slot, running, now_ns)
            except Exception as error:  # of whoever was told; the other deadlines still hold
                self._loop.call_exception_handler(
                    {"message": f"at the deadline of job {running.job_id}", "exception": error}
                )
        due = self.next_due()
        if due is None:
            self._clear_alarm()
        else:
            self._set_alarm(due)

    def next_due(self) -> int | None:
        """When there is something to do next (monotonic nanoseconds); None: nothing is due."""
        dues = [
            self._due(slot, running)
            for slot in self._fleet.busy()
            if (running := slot.running) is not None and not slot.is_being_killed
        ]
        return min(dues, default=None)

    def close(self) -> None:
        """Nothing is enforced any more."""
        self._clear_alarm()

    def _enforce(self, slot: Slot, running: Running, now_ns: int) -> None:
        if slot.is_being_killed:
            return
        started_ns = self._started_ns(slot, running)
        if now_ns >= started_ns + int(running.hard_seconds * _SECOND):
            self._fleet.kill(slot, Reason.TIMEOUT, token=running.token)
        elif running.force_due_ns and now_ns >= running.force_due_ns:
            # It was asked before this is read, and a handler marks its commit point before it looks
            # whether it was asked: one of the two sees the other.
            if slot.past_commit_point():
                running.force_due_ns = now_ns + FORCE_REPEAT_NS
            else:
                self._fleet.kill(slot, Reason.CANCEL, token=running.token)
        elif running.soft_seconds and now_ns >= self._soft_due(running, started_ns):
            self._fleet.soft_timeout(slot, running.token)
            running.soft_due_ns = now_ns + (SOFT_REPEAT_NS << min(running.soft_sent, 16))
            running.soft_sent += 1

    def _due(self, slot: Slot, running: Running) -> int:
        started_ns = self._started_ns(slot, running)
        hard = started_ns + int(running.hard_seconds * _SECOND)
        if running.force_due_ns:
            hard = min(hard, running.force_due_ns)
        if not running.soft_seconds:
            return hard
        return min(hard, self._soft_due(running, started_ns))

    def _started_ns(self, slot: Slot, running: Running) -> int:
        """The page is a stranger's: an impossible start is none, and the first one read stays."""
        if not running.started_ns:
            started = slot.started()
            if started is None or not running.given_ns <= started.at_ns <= monotonic_ns():
                return running.given_ns
            running.started_ns = started.at_ns
        return running.started_ns

    def _soft_due(self, running: Running, started_ns: int) -> int:
        return running.soft_due_ns or started_ns + int(running.soft_seconds * _SECOND)

    def _set_alarm(self, due_ns: int) -> None:
        self._clear_alarm()
        self._due_ns = due_ns
        delay = max(0, due_ns - monotonic_ns()) / _SECOND
        self._timer = self._loop.call_later(delay, self._ring)

    def _clear_alarm(self) -> None:
        self._due_ns = float("inf")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self.enforce(monotonic_ns())
