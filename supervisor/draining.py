"""Whether this host takes more jobs: not while somebody has asked it to drain, nor when it leaves.

A drain is asked for at the host (the control socket) or in the database (the session's row), and
whoever ends it ends both. What runs goes on; what was claimed and has not started goes back.
"""

from __future__ import annotations

from jobctl.supervisor.alarm import Alarm
from jobctl.supervisor.condition import Condition
from jobctl.supervisor.dispatch import Dispatcher
from jobctl.supervisor.events import Event
from jobctl.supervisor.fleet import Fleet
from jobctl.supervisor.leases import Lease
from jobctl.supervisor.log import Log
from jobctl.supervisor.metrics import Metrics


class Draining:
    """Writes what `Condition` says of it, and sees to what follows."""

    def __init__(
        self,
        condition: Condition,
        dispatcher: Dispatcher,
        fleet: Fleet,
        lease: Lease,
        metrics: Metrics,
        log: Log,
        alarm: Alarm,
    ) -> None:
        self._condition = condition
        self._dispatcher = dispatcher
        self._fleet = fleet
        self._lease = lease
        self._metrics = metrics
        self._log = log
        self._alarm = alarm

    def drain(self) -> None:
        """Asked at this host."""
        if not self._condition.drained:
            self._condition.drained = True
            self._changed()

    def undrain(self) -> None:
        """Asked at this host: whoever had asked for the drain."""
        if self._condition.drained or self._condition.drain_requested:
            self._condition.drained = self._condition.drain_requested = False
            self._lease.errand("undrain_session", session=self._lease.session_id)
            self._changed()

    def told(self, requested: bool) -> None:
        """What the session's row says."""
        if requested != self._condition.drain_requested:
            self._condition.drain_requested = requested
            self._changed()

    def leave(self) -> None:
        """For good: the supervisor is about to stop."""
        self._condition.leaving = True
        self._stop_claiming()

    def _changed(self) -> None:
        self._metrics.draining(self._condition.draining)
        if self._condition.draining:
            self._log.say(Event.DRAINING, busy=len(self._fleet.busy()))
            self._stop_claiming()
        else:
            self._log.say(Event.UNDRAINED)
            self._dispatcher.reread()
            self._lease.hurry()

    def _stop_claiming(self) -> None:
        self._dispatcher.hand_back_all()
        self._lease.hurry()
        self._alarm.set()
