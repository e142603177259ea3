"""What a dispatcher may do here: the answers that rest on the slots, the lease and what is written.

Claiming and starting are two permissions. A host that drains claims nothing and starts what it has
claimed or hands it back; one whose lease is over starts nothing, whoever has noticed it yet.
"""

from __future__ import annotations

from time import monotonic

import psycopg

from jobctl.supervisor.alarm import Alarm
from jobctl.supervisor.attempts import Attempts
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.condition import Condition
from jobctl.supervisor.events import Event
from jobctl.supervisor.fleet import Fleet
from jobctl.supervisor.leases import Lease
from jobctl.supervisor.listener import Reason
from jobctl.supervisor.log import Log, first_line
from jobctl.supervisor.metrics import Metrics
from jobctl.supervisor.outcomes import Failed, HandedBack, Unrunnable
from jobctl.supervisor.settle import Settler
from jobctl.supervisor.slot import Slot


class HostHands:
    """This host's; what its methods promise stands in `dispatch.Hands`."""

    def __init__(
        self,
        fleet: Fleet,
        lease: Lease,
        attempts: Attempts,
        settler: Settler,
        condition: Condition,
        metrics: Metrics,
        log: Log,
        alarm: Alarm,
    ) -> None:
        self._fleet = fleet
        self._lease = lease
        self._attempts = attempts
        self._settler = settler
        self._condition = condition
        self._metrics = metrics
        self._log = log
        self._alarm = alarm

    def idle_slots(self, pool: str) -> list[Slot]:
        return self._fleet.idle_slots(pool)

    def may_claim(self) -> bool:
        condition = self._condition
        stopped = condition.draining or condition.fenced or self._fleet.degraded
        return bool(self._lease.session_id) and not stopped

    def may_start(self) -> bool:
        return not self._lease.over()

    def give_back(self, claimed: Claimed, cause: HandedBack | Unrunnable | Failed) -> None:
        self._attempts.give_back(claimed, cause)

    def holds(self) -> set[tuple[int, int]]:
        running = (slot.running for slot in self._fleet.busy())
        claims = [run.claim for run in running if run is not None]
        held = {(one.session_id, one.token) for one in claims if isinstance(one, Claimed)}
        return held | self._settler.tokens()

    def disown(self, claims: list[tuple[int, int]]) -> None:
        if claims:
            self._log.say(Event.CLAIMS_DISOWNED, count=len(claims))
            self._attempts.disown(self._lease.session_id, claims)

    def on_claims_missing(self, present: set[int], before_token: int) -> None:
        for slot in self._fleet.busy():
            running = slot.running
            if running is None or not isinstance(running.claim, Claimed):
                continue
            ours = running.claim.session_id == self._lease.session_id
            if ours and running.token < before_token and running.token not in present:
                self._fleet.kill(slot, Reason.LOST, token=running.token)

    def on_claimed(self, claimed: list[Claimed]) -> None:
        for one in claimed:
            self._metrics.of(one.queue, one.type).claimed(one.waited)
        self._condition.seen_at = monotonic()
        if self._condition.resting:
            self._alarm.set()  # the rest is over: deadlines are watched from now on

    def on_refused(self, statement: str, error: psycopg.Error) -> None:
        self._log.say(Event.DATABASE_REFUSED, statement=statement, error=first_line(error))
