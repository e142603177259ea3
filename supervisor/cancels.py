"""Cancels: what somebody wants ended while this host holds it.

The database knows who has asked for what; this is how it reaches a handler. What has not started
is handed back, and settled as cancelled without ever running; what runs is told, once; what is to
be killed if it goes on is given to the deadlines. Everything is by the token of the claim, so that
nothing of it can reach the next job. Whether a job was cancelled or was quicker is decided where it
ends, never here.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns

from jobctl.store.link import Row
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.deadlines import Deadlines
from jobctl.supervisor.dispatch import Dispatcher
from jobctl.supervisor.events import Event
from jobctl.supervisor.fleet import Fleet
from jobctl.supervisor.log import Log
from jobctl.supervisor.slot import Running, Slot

#: No grace is longer; what is beyond is capped here before it meets a clock.
LONGEST_GRACE = 366 * 86_400.0


class Cancels:
    """One host's."""

    def __init__(
        self, fleet: Fleet, dispatcher: Dispatcher, deadlines: Deadlines, log: Log
    ) -> None:
        self._fleet = fleet
        self._dispatcher = dispatcher
        self._deadlines = deadlines
        self._log = log

    def learn(self, session: int, rows: Sequence[Row]) -> None:
        """All that this session holds and somebody wants ended: the rows of `read_cancels.sql`."""
        wanted = {token: (force_in, compensating) for _, token, force_in, compensating in rows}
        waiting = {token for token, (_, compensating) in wanted.items() if not compensating}
        for slot in self._fleet.busy():
            running = slot.running
            if running is None or not isinstance(running.claim, Claimed):
                continue
            if running.claim.session_id == session and running.token in wanted:
                waiting.discard(running.token)
                force_in, compensating = wanted[running.token]
                self._tell(slot, running, running.claim, force_in, compensating)
        self._dispatcher.do_not_start(waiting)

    def _tell(
        self,
        slot: Slot,
        running: Running,
        claimed: Claimed,
        force_in: float | None,
        compensating: bool,
    ) -> None:
        if not compensating and not running.cancel_asked:
            self._fleet.ask_to_cancel(slot, running.token)
            self._log.say(
                Event.CANCEL_ASKED, job=claimed.job_id, type=claimed.type, queue=claimed.queue,
                key=claimed.key, subject=claimed.subject, slot=slot.number,
            )  # fmt: skip
        if force_in is not None and not running.force_due_ns:
            grace = min(max(force_in, 0.0), LONGEST_GRACE)
            self._deadlines.force(running, monotonic_ns() + int(grace * 1e9))
