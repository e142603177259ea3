"""The states of a job, the outcomes of an attempt, and who moves what where.

A state is a place: the job's row stands in exactly one of the placement tables, or in history, and
the word is read off that place (view `jobs`). This file says it in words and as data; the
statements in `store/sql` do it, each guarded so that it moves only what still stands there.

                       enqueue
          +---------------+----------------+
          v               v                v
      scheduled ------> queued <------- blocked
          ^   promote    | ^    release
          |              | |
          | snooze  claim| | hand back, interrupt, lose
          |              v |
          +----------- running -----> retrying ----> queued
                         |    fail             promote
           +-------------+-------------+
           v             v             v
       succeeded     cancelled       dead ----> queued
                         ^             |  replay
                         |             v
       scheduled, queued,          discarded
       retrying, blocked
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Where a job stands. The word in view `jobs`, on the command line and in metrics."""

    SCHEDULED = "scheduled"
    """Its time has not come, or it snoozed. Any supervisor promotes it when `run_at` is past, the
    leader as a backstop; a cancel takes it out at once. It does not say that anybody is able to run
    it then. Place: `scheduled`."""

    QUEUED = "queued"
    """Due, and waiting for a slot. A supervisor that serves its queue claims it in the order of its
    lane; a cancel takes it out at once. It does not say that a host exists that knows its type: a
    job that its claimer cannot run waits in a lane of its type. Place: `ready`."""

    RUNNING = "running"
    """Claimed by one supervisor, under a lease and a token; the handler may be about to start. Its
    supervisor settles it with whatever ended it; if that one is gone, the reaper does once the
    lease is over. A cancel request leaves it running and stands beside it in
    `cancel_requested_at`. It does not say that the process is alive: `stuck` does. Place: `claim`.
    """

    RETRYING = "retrying"
    """An attempt ended badly and the next one waits for its backoff. Promoted like a scheduled one
    when `run_at` is past, or cancelled. Place: `scheduled`, with `retry`."""

    BLOCKED = "blocked"
    """It waits for something that lets it go: a parent, a limit. Released in the transaction that
    frees it, swept by the leader if that was missed, or cancelled. Place: `blocked`."""

    SUCCEEDED = "succeeded"
    """The handler returned, or committed the success itself. Final. Place: `history`."""

    DEAD = "dead"
    """Its budget is spent or its error is permanent. It stays, with its attempts and stacks, until
    an operator replays or discards it; nothing else moves it and no retention deletes it. Place:
    `dead`."""

    CANCELLED = "cancelled"
    """Somebody cancelled it, before it ran or at a safe point or by force. Final; what had happened
    by then may have left traces. Place: `history`."""

    DISCARDED = "discarded"
    """It was dead and an operator gave it up, for a reason that the audit log keeps. Final. Place:
    `history`."""

    @property
    def is_final(self) -> bool:
        """Nothing moves it any more; its row is in history."""
        return self in (State.SUCCEEDED, State.CANCELLED, State.DISCARDED)


class Outcome(StrEnum):
    """How an attempt ended. What follows is decided in `settle`."""

    SUCCEEDED = "succeeded"  # the handler returned
    FAILED = "failed"  # it raised, or its result cannot be stored
    TIMEOUT = "timeout"  # the soft timeout was let through, or the hard deadline came
    CRASHED = "crashed"  # the process died: signal, exit, exec, out of memory, closed channel
    LOST = "lost"  # its supervisor is gone and the lease is over
    SNOOZED = "snoozed"  # the handler asked to be called later
    CANCELLED = "cancelled"  # at a safe point, or by force
    INTERRUPTED = "interrupted"  # a drain or a reload ran out of patience

    @property
    def spends_attempt(self) -> bool:
        """Whether the attempt counts; one that does not is given back."""
        return self not in (Outcome.SNOOZED, Outcome.INTERRUPTED)

    @property
    def counts_as_crash(self) -> bool:
        """Whether it also counts against `max_crashes`."""
        return self in (Outcome.CRASHED, Outcome.LOST)


class Transition(NamedTuple):
    """One way from a state to another. `source` is None for a job that is born."""

    source: State | None
    target: State
    verb: str
    by: str


#: Every way that a job can go, in the order of a life. What is not here does not happen.
TRANSITIONS: tuple[Transition, ...] = (
    Transition(None, State.SCHEDULED, "enqueue", "the caller's commit"),
    Transition(None, State.QUEUED, "enqueue", "the caller's commit"),
    Transition(None, State.BLOCKED, "enqueue", "the caller's commit"),
    Transition(State.SCHEDULED, State.QUEUED, "promote", "any supervisor, the leader"),
    Transition(State.RETRYING, State.QUEUED, "promote", "any supervisor, the leader"),
    Transition(State.BLOCKED, State.QUEUED, "release", "whatever it waited for, the leader"),
    Transition(State.BLOCKED, State.SCHEDULED, "release", "whatever it waited for, the leader"),
    Transition(State.QUEUED, State.RUNNING, "claim", "a supervisor"),
    Transition(State.RUNNING, State.QUEUED, "hand back", "its supervisor, the reaper"),
    Transition(State.RUNNING, State.SCHEDULED, "snooze", "its supervisor"),
    Transition(State.RUNNING, State.SUCCEEDED, "succeed", "its supervisor"),
    Transition(State.RUNNING, State.RETRYING, "fail", "its supervisor, the reaper"),
    Transition(State.RUNNING, State.DEAD, "bury", "its supervisor, the reaper"),
    Transition(State.RUNNING, State.CANCELLED, "cancel", "its supervisor, the reaper"),
    Transition(State.SCHEDULED, State.CANCELLED, "cancel", "a caller, an operator"),
    Transition(State.QUEUED, State.CANCELLED, "cancel", "a caller, an operator"),
    Transition(State.RETRYING, State.CANCELLED, "cancel", "a caller, an operator"),
    Transition(State.BLOCKED, State.CANCELLED, "cancel", "a caller, an operator, a dead parent"),
    Transition(State.DEAD, State.QUEUED, "replay", "an operator"),
    Transition(State.DEAD, State.DISCARDED, "discard", "an operator"),
)


def may_follow(source: State | None, target: State) -> bool:
    """Whether a job can go from `source` (None: not born) to `target` in one step."""
    return any(t.source is source and t.target is target for t in TRANSITIONS)
