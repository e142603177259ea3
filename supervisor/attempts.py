"""What came of what was given: from a slot's word, or its death, to an ending.

The middle of the way from claim to settle. Every attempt that a slot was given comes back through
here exactly once - done, ended otherwise, or dead with its slot - is judged by the table of
outcomes and handed to `settle`; and every claim that did not start goes back. No SQL, no waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import monotonic, monotonic_ns
from typing import Any, cast

from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.code import Code
from jobctl.supervisor.dispatch import Dispatcher
from jobctl.supervisor.events import Event
from jobctl.supervisor.exits import signal_name
from jobctl.supervisor.listener import Death, Reason
from jobctl.supervisor.log import Log
from jobctl.supervisor.metrics import Metrics
from jobctl.supervisor.outcomes import (
    UNREGISTERED,
    Cancelled,
    Cause,
    Crashed,
    Ending,
    Failed,
    HandedBack,
    Interrupted,
    Lost,
    Snoozed,
    TimedOut,
    Unrunnable,
    decide,
    is_poison,
)
from jobctl.supervisor.quota import Quota
from jobctl.supervisor.settle import Other, Settlement, Settler, Success
from jobctl.supervisor.slot import Running, Slot
from jobctl.workerproc.frames import Done

#: Peak memory and CPU of an attempt, and where it ran, for its row.
Details = Mapping[str, Any]

#: Attempts that succeed have so many lines a second; the others all have theirs.
MOST_SUCCESSES = 100
#: How many had none is said so often.
UNSAID_SECONDS = 10.0


class Attempts:
    """Judges what ends, by the policies that the code of the slot's generation declares."""

    def __init__(
        self,
        host: str,
        code: Code,
        metrics: Metrics,
        log: Log,
        *,
        say_successes: bool = True,
    ) -> None:
        self.dispatcher: Dispatcher  # both are set once they exist
        self.settler: Settler
        self.interrupted = 0  # attempts that a stop, or the lease, has ended
        self.queued_again = 0  # of those
        self._host = host
        self._code = code
        self._metrics = metrics
        self._log = log
        self._successes = Quota(MOST_SUCCESSES, MOST_SUCCESSES) if say_successes else None
        self._unsaid_at = 0.0

    # Slots report -----------------------------------------------------------------------------

    def on_done(self, slot: Slot, running: Running, done: Done) -> None:
        """The common case, and the hot one: the slot is fed first, then the books are kept."""
        dispatcher = self.dispatcher
        dispatcher.feed(slot)
        claimed = cast(Claimed, running.claim)
        seconds = (done.ended_ns - done.started_ns) / 1e9
        dispatcher.finished(slot, claimed, seconds)
        self.settler.settle(Success(claimed, seconds=seconds, slot=slot.number))
        series = self._metrics.of(claimed.queue, claimed.type)
        series.started((done.started_ns - claimed.claimed_ns) / 1e9)
        series.ended("succeeded", seconds)

    def on_ended(self, slot: Slot, running: Running, body: Mapping[str, Any]) -> None:
        """Ended with a result, or not well; `body` was checked by the fleet."""
        dispatcher = self.dispatcher
        dispatcher.feed(slot)
        claimed = cast(Claimed, running.claim)
        seconds = max(0.0, (body["ended_ns"] - body["started_ns"]) / 1e9)
        dispatcher.finished(slot, claimed, seconds)
        series = self._metrics.of(claimed.queue, claimed.type)
        series.started((body["started_ns"] - claimed.claimed_ns) / 1e9)
        for result, count in (body.get("effects") or {}).items():
            self._metrics.effects(result, count)
        if body["outcome"] == "succeeded":
            self.settler.settle(
                Success(
                    claimed, body.get("result"), body.get("steps"), running.progress,
                    seconds, slot.number,
                )
            )  # fmt: skip
            series.ended("succeeded", seconds)
            return
        if body["outcome"] == "timeout":
            series.killed("soft")
        details = {
            "slot": slot.number,
            "pid": slot.pid,
            "started_ago": max(0.0, (monotonic_ns() - body["started_ns"]) / 1e9),
            "said": running.progress,
        }
        self._judge(claimed, cause_of(body), slot.generation, details, seconds)

    def on_death(self, slot: Slot, running: Running, death: Death) -> None:
        """The slot is gone, and took this attempt with it."""
        claimed = cast(Claimed, running.claim)
        if death.reason is Reason.LOST:
            return  # the claim is not ours: whoever has it writes
        seconds = max(0.0, (monotonic_ns() - death.started_ns) / 1e9) if death.started else 0.0
        details = {
            "slot": slot.number,
            "pid": slot.pid,
            "started_ago": seconds if death.started else None,
            "peak_memory_bytes": death.peak_memory_bytes,
            "cpu_seconds": death.cpu_seconds,
            "said": death.progress,
        }
        cause = _cause_of_death(running, death)
        if isinstance(cause, Interrupted):
            self.interrupted += 1
        if death.reason in (Reason.TIMEOUT, Reason.CPU):
            self._metrics.of(claimed.queue, claimed.type).killed("hard")
        if claimed.marked and isinstance(cause, HandedBack):
            # Acknowledged early: once a slot was given it, it is taken for begun.
            cause = Lost(death.sentence)
        self.dispatcher.finished(slot, claimed, seconds)
        self._judge(claimed, cause, slot.generation, details, seconds)

    # The dispatcher reports ---------------------------------------------------------------------

    def give_back(self, claimed: Claimed, cause: HandedBack | Unrunnable | Failed) -> None:
        """A claim that did not start here."""
        self._judge(claimed, cause, None, {}, 0.0)

    def disown(self, session: int, claims: list[tuple[int, int]]) -> None:
        """(job, token): claimed by a statement whose answer was lost, and so never started."""
        for job, token in claims:
            claimed = Claimed(
                session, monotonic_ns(), "", 0, "", 0, job, token, "", None, None, 0, 0, 0,
                None, None, "{}", 0.0, 0.0, None,
            )  # fmt: skip
            self.settler.settle(Other(claimed, Ending(job, session, token, "front")))

    # Settle reports -----------------------------------------------------------------------------

    def on_settled(self, settlement: Settlement, place: str) -> None:
        """It is written."""
        claimed = settlement.claimed
        if isinstance(settlement, Success):
            self._finished(claimed, "succeeded", claimed.attempt + 1)
            if self._successes is not None and self._successes.take():
                self._say_ended(
                    Event.JOB_SUCCEEDED, claimed, outcome="succeeded", state="succeeded",
                    seconds=settlement.seconds, slot=settlement.slot,
                )  # fmt: skip
            return
        ending = settlement.ending
        if place == "succeeded":
            self._had_succeeded(settlement)
            return
        self._count(settlement, ending.outcome)
        if ending.outcome == "interrupted" and place == "front":
            self.queued_again += 1
        if place in ("dead", "cancelled") and claimed.type:
            self._finished(claimed, place, claimed.attempt + ending.spent)
            if place == "dead" and settlement.poison:
                self._metrics.of(claimed.queue, claimed.type).poisoned()
        if place == "cancelled" and settlement.requested_ago is not None:
            self._metrics.cancelled(settlement.requested_ago)
        if ending.outcome is None:
            if claimed.type and place == "lane":
                because = "this host's code cannot run it; it waits for one that can"
                self._say(Event.JOB_RETURNED, claimed, because=because)
            return
        if place in ("retry", "front") and ending.outcome in _REDELIVERED:
            reason = _REDELIVERED[ending.outcome]
            self._metrics.of(claimed.queue, claimed.type).redelivered(reason)
        self._say_ended(
            Event.JOB_ENDED, claimed, outcome=ending.outcome, state=_STATE[place],
            seconds=ending.started_ago, slot=ending.slot, pid=ending.pid,
            error_class=ending.error_class, error_code=ending.error_code,
            error=ending.error or ending.exit_reason or "no reason was given",
            signal=ending.signal, cpu_seconds=ending.cpu_seconds,
            peak_memory_bytes=ending.peak_memory_bytes,
        )  # fmt: skip

    def say_unsaid(self, *, last: bool = False) -> None:
        """Once in a while: how many have succeeded without a line of their own."""
        if self._successes is None or not self._successes.refused:
            return
        if monotonic() >= self._unsaid_at or last:
            self._unsaid_at = monotonic() + UNSAID_SECONDS
            self._log.say(Event.JOBS_UNSAID, count=self._successes.take_refused())

    def on_lost(self, settlement: Settlement) -> None:
        """Nothing was changed: the claim had gone to somebody else."""
        if isinstance(settlement, Other):
            self._count(settlement, settlement.ending.outcome)
        if settlement.claimed.type:
            self._metrics.claim_lost()
            self._say(Event.CLAIM_LOST, settlement.claimed)

    def on_unstorable(self, settlement: Settlement, error: str) -> None:
        """It is settled in plain words instead."""
        self._say(Event.ROW_UNSTORABLE, settlement.claimed, error=error)

    def on_settle_refused(self, error: str) -> None:
        """The batch waits and is tried again."""
        self._log.say(Event.DATABASE_REFUSED, statement="settle", error=error)

    # ----------------------------------------------------------------------------------------------

    def _judge(
        self,
        claimed: Claimed,
        cause: Cause,
        generation: int | None,
        details: Details,
        seconds: float,
    ) -> None:
        policy = self._code.types(generation).get(claimed.type, UNREGISTERED)
        if claimed.marked and policy.ack != "early":  # code that knew it so had it marked
            policy = replace(policy, ack="early")
        since_claim = (monotonic_ns() - claimed.claimed_ns) / 1e9
        elapsed = (claimed.elapsed or 0.0) + since_claim
        ending = decide(
            claimed.job_id, claimed.session_id, claimed.token, claimed, policy, cause, elapsed
        )
        ending.host = self._host
        for name, value in details.items():
            setattr(ending, name, value)
        self.settler.settle(
            Other(
                claimed, ending, seconds if details else None, counts=True,
                poison=is_poison(ending, claimed, policy),
            )
        )  # fmt: skip

    def _had_succeeded(self, settlement: Other) -> None:
        """Its handler had committed the success: how the attempt ended after that is only said."""
        claimed, ending = settlement.claimed, settlement.ending
        if not claimed.type:
            return
        self._count(settlement, "succeeded")
        self._finished(claimed, "succeeded", claimed.attempt + 1)
        if ending.outcome is not None:
            error = ending.error or ending.exit_reason or "no reason was given"
            self._say_ended(
                Event.JOB_HAD_SUCCEEDED, claimed, outcome=ending.outcome, state="succeeded",
                seconds=ending.started_ago, slot=ending.slot, error=error,
            )  # fmt: skip

    def _count(self, settlement: Other, outcome: str | None) -> None:
        """An attempt of ours, under what became of it: that is known once it is written."""
        if settlement.counts and outcome is not None:
            claimed = settlement.claimed
            self._metrics.of(claimed.queue, claimed.type).ended(outcome, settlement.took)

    def _finished(self, claimed: Claimed, state: str, attempts: int) -> None:
        age = claimed.age + (monotonic_ns() - claimed.claimed_ns) / 1e9
        self._metrics.of(claimed.queue, claimed.type).finished(state, attempts, age)

    def _say_ended(self, event: Event, claimed: Claimed, **fields: Any) -> None:
        """The one line of an attempt."""
        self._say(
            event, claimed, attempt=claimed.attempt + 1, waited=round(claimed.waited, 3), **fields
        )

    def _say(self, event: Event, claimed: Claimed, **fields: Any) -> None:
        self._log.say(
            event, job=claimed.job_id, type=claimed.type, queue=claimed.queue,
            key=claimed.key, subject=claimed.subject, **fields,
        )  # fmt: skip


#: What a log line calls the places that an ending can lead to.
_STATE = {
    "retry": "retrying",
    "snooze": "scheduled",
    "front": "queued",
    "lane": "queued",
    "dead": "dead",
    "cancelled": "cancelled",
    "compensate": "queued",  # for its hook
}

#: What the metrics call a job that runs again through no fault of its handler's code.
_REDELIVERED = {"lost": "lease_expired", "crashed": "crash", "interrupted": "interrupted"}


def cause_of(body: Mapping[str, Any]) -> Cause:
    """An ENDED frame, which is a stranger's word but was checked, as a cause."""
    match body["outcome"]:
        case "timeout":
            return TimedOut("soft", body["error"], body.get("stack"))
        case "snoozed":
            return Snoozed(body["snooze_seconds"])
        case "cancelled":
            return Cancelled(
                body.get("error"),
                body.get("error_class"),
                body.get("error_code"),
                body.get("stack"),
                body.get("hook_failed", False),
            )
        case "unrunnable":
            return Unrunnable()
        case _:
            return Failed(
                body["error_class"],
                body["error"],
                body.get("error_code"),
                body.get("stack"),
                body.get("permanent", False),
                body.get("retry_after_seconds"),
                body.get("hold_limit", False),
            )


def _cause_of_death(running: Running, death: Death) -> Cause:
    name = None if death.exit.signal is None else signal_name(death.exit.signal)
    match death.reason:
        case Reason.TIMEOUT:
            error = f"still running at its deadline of {running.hard_seconds:g} s; killed"
            return TimedOut("hard", error, death.stack, death.sentence, name)
        case Reason.CPU:
            return TimedOut("hard", death.sentence, death.stack, death.sentence, name)
        case Reason.CANCEL:
            error = "cancelled by force; its process was killed"
            return Cancelled(error, "Cancelled", stack=death.stack, forced=True)
        case Reason.MEMORY:
            return Crashed(death.sentence, name, death.stack, "memory")
        case Reason.CRASH:
            return Crashed(death.sentence, name, death.stack)
        case _ if death.started:
            return Interrupted(death.sentence)
        case _:
            return HandedBack()
