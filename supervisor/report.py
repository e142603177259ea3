"""What a supervisor says of itself, to people and to probes. It never asks PostgreSQL for it."""

from __future__ import annotations

from time import monotonic, monotonic_ns
from typing import Any

from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.condition import Condition
from jobctl.supervisor.dispatch import Dispatcher
from jobctl.supervisor.fleet import Fleet
from jobctl.supervisor.headline import headline
from jobctl.supervisor.identity import Identity
from jobctl.supervisor.leader import Leader
from jobctl.supervisor.leases import Lease
from jobctl.supervisor.reload import Progress
from jobctl.supervisor.settle import Settler
from jobctl.supervisor.slot import Slot, Stage
from jobctl.supervisor.stopping import Stop

#: The loop must have turned this lately for the host to be alive, PostgreSQL must have answered
#: (or, between two renewals of a long lease, half of it) for the host to be ready.
LATELY_SECONDS = 15.0


class Report:
    """Reads from the parts; changes nothing."""

    def __init__(
        self,
        identity: Identity,
        condition: Condition,
        fleet: Fleet,
        lease: Lease,
        leader: Leader,
        dispatcher: Dispatcher,
        settler: Settler,
        stop: Stop,
    ) -> None:
        self._identity = identity
        self._condition = condition
        self._fleet = fleet
        self._lease = lease
        self._leader = leader
        self._dispatcher = dispatcher
        self._settler = settler
        self._stop = stop

    def database_seen(self) -> bool:
        """Whether PostgreSQL has answered lately."""
        if self._condition.fenced:  # a lease may be shorter than what is lately
            return False
        patience = max(LATELY_SECONDS, self._lease.seconds / 2)
        seen_at = self._condition.seen_at
        return seen_at > 0 and monotonic() - seen_at < patience

    def ready_slots(self) -> int:
        """How many slots could run, or run, a job."""
        stages = (slot.stage for slot in self._fleet.slots())
        return sum(stage in (Stage.IDLE, Stage.BUSY) for stage in stages)

    def not_live(self) -> list[str]:
        """Reasons why the process should be started anew; PostgreSQL is never one."""
        late = monotonic() - self._condition.turned_at
        return [f"the loop has not turned for {late:.0f} s"] if late > LATELY_SECONDS else []

    def not_ready(self) -> list[str]:
        """Reasons why this host runs nothing new."""
        reasons = []
        if not self._lease.session_id:
            reasons.append("no session is registered with PostgreSQL")
        elif not self.database_seen():
            reasons.append("PostgreSQL has not answered lately")
        if not self.ready_slots():
            reasons.append("no slot is ready")
        if self._condition.fenced:
            reasons.append("the lease is over")
        if self._fleet.degraded:
            reasons.append("slots die before they have done anything")
        if self._condition.draining:
            reasons.append("draining")
        return reasons

    def has_started(self) -> bool:
        """Whether it does its work, or would if PostgreSQL answered: a database that is away must
        not hold up the start of the machine, nor have the service started again and again."""
        database = bool(self._lease.session_id) or "lease" in self._condition.down
        return database and self.ready_slots() > 0

    def load_error(self) -> str | None:
        """Why the app could not be imported the last time, if so."""
        return self._condition.load_error

    def reload_progress(self) -> Progress:
        """Of the last reload."""
        return self._fleet.reload_progress()

    def headline(self, now: float) -> str:
        """One line for people."""
        return headline(
            now, self._condition, self._fleet, self._stop,
            leads=self._leader.leads, ready=self.ready_slots(),
            unwritten=len(self._settler), trouble=self._trouble(),
        )  # fmt: skip

    def _trouble(self) -> str | None:
        if self._condition.fenced:
            return "the lease is over and nothing may run: PostgreSQL does not answer"
        if self._condition.down or (self._condition.seen_at and not self.database_seen()):
            return "PostgreSQL does not answer: nothing new starts"
        return None

    def state(self) -> dict[str, Any]:
        """Everything, for `jobctl status` and the log."""
        reasons = self.not_ready()
        return {
            "host": self._identity.host,
            "pid": self._identity.pid,
            "version": self._identity.version,
            "session": self._lease.session_id,
            "leader": self._leader.leads,
            "draining": self._condition.draining,
            "leaving": self._condition.leaving,
            "ready": not reasons,
            "reasons": reasons,
            "busy": len(self._fleet.busy()),
            "reserve": len(self._dispatcher),
            "unwritten": len(self._settler),
            "reload": self._reload(),
            "control_groups": "" if (groups := self._fleet.groups) is None else groups.sentence,
            "slots": [_slot(slot) for slot in self._fleet.slots()],
        }

    def _reload(self) -> dict[str, Any]:
        progress = self._fleet.reload_progress()
        return {
            "asked": progress.asked,
            "number": progress.number,
            "decided": progress.decided,
            "step": progress.step.value,
            "failed": progress.failed,
            "error": self._condition.load_error,
            "old": progress.old,
        }


def _slot(slot: Slot) -> dict[str, Any]:
    running = slot.running
    claim = None if running is None else running.claim
    return {
        "slot": slot.number,
        "pool": slot.pool,
        "pid": slot.pid,
        "stage": slot.stage.value,
        "job": None if running is None else running.job_id,
        "type": claim.type if isinstance(claim, Claimed) else None,
        "seconds": None if running is None else (monotonic_ns() - running.given_ns) / 1e9,
    }
