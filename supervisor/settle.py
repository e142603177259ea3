"""Settle: the one door through which every attempt ends.

Whatever ended an attempt arrives here as a success or as an `Ending`, is written in batches -
whatever came while the last batch was being written - and is not forgotten until PostgreSQL has
said that it is written, or that the claim was no longer ours. An outage delays what is settled and
loses none of it. One row never fails a batch, and never holds up another: what is locked steps
aside and comes back, what cannot be stored is settled as a failure that can.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, groupby
from typing import Any, Protocol

import psycopg
from psycopg import errors

from jobctl.store.errors import InvalidJob
from jobctl.store.json_values import max_args_bytes
from jobctl.store.link import Link, Unreachable
from jobctl.store.texts import TEXT_LIMIT, redact, storable
from jobctl.supervisor.alarm import Alarm
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.outcomes import Ending

#: The most that one statement settles.
LARGEST_BATCH = 500
#: Rows that somebody else has locked are tried again after this, doubling up to the next.
LOCKED_SECONDS = 0.05
#: What PostgreSQL refuses for its own reasons (a full disk, a lock, a switch-over) is tried again.
REFUSED_SECONDS = 1.0
#: The class of a failure that is of what the handler enqueued with ctx.enqueue.
UNSTORABLE_STEP = "unstorable_step"
#: A delay that is longer, or none at all, becomes this when an ending cannot be stored as it is.
PLAIN_DELAY_SECONDS = 86_400.0


@dataclass(slots=True, eq=False)
class Success:
    """The handler returned; `result` is JSON text, checked where it was made. `steps` is what it
    has enqueued for now: a JSON array as `enqueue_many` takes it, a stranger's word."""

    claimed: Claimed
    result: str | None = None
    steps: str | None = None
    progress: dict[str, Any] | None = None  # in the words of `dated_progress`
    seconds: float = 0.0  # how long it ran, and where: for its line in the log
    slot: int | None = None
    tries: int = 0  # how often it had to step aside; the settler's own


@dataclass(slots=True, eq=False)
class Other:
    """Any ending that is not a plain success."""

    claimed: Claimed
    ending: Ending
    took: float | None = None  # seconds, if anybody knows
    counts: bool = False  # as an attempt of ours, once it is known how it ended
    poison: bool = False  # it was one death of its process too many
    tries: int = 0
    requested_ago: float | None = None  # once written: seconds since somebody asked to cancel it


Settlement = Success | Other
_Write = Callable[[Sequence[Settlement]], Coroutine[Any, Any, None]]


class Observer(Protocol):
    """Whom to tell what has become of a claim, once it is known; once for each."""

    def on_settled(self, settlement: Settlement, place: str) -> None:
        """Written. `place` is 'succeeded', or where the job went."""

    def on_lost(self, settlement: Settlement) -> None:
        """The claim was no longer ours: nothing was changed."""

    def on_unstorable(self, settlement: Settlement, error: str) -> None:
        """PostgreSQL refused this one row; it is settled as a failure that says so."""

    def on_settle_refused(self, error: str) -> None:
        """PostgreSQL refused to write for reasons of its own; it will be tried again."""


class Settler:
    """Writes endings over one link of its own."""

    def __init__(self, link: Link, observer: Observer) -> None:
        self._link = link
        self._observer = observer
        self._waiting: deque[Settlement] = deque()
        self._aside: list[tuple[float, int, Settlement]] = []  # by the loop's clock
        self._order = count()  # of two that are due at once
        self._held: set[tuple[int, int]] = set()
        self._most_args_bytes = _most_args_bytes()
        self._alarm = Alarm()
        self._idle = asyncio.Event()
        self._idle.set()

    def settle(self, settlement: Settlement) -> None:
        """Takes it over; returns at once. Of two endings of one claim the first counts."""
        key = _key(settlement)
        if key in self._held:
            self._observer.on_lost(settlement)
            return
        self._held.add(key)
        self._waiting.append(settlement)
        self._idle.clear()
        self._alarm.set()

    def tokens(self) -> AbstractSet[tuple[int, int]]:
        """(session, token) of everything that is not written yet."""
        return self._held

    def __len__(self) -> int:
        return len(self._held)

    async def written(self) -> None:
        """Returns once everything that was taken over is written."""
        await self._idle.wait()

    async def run(self) -> None:
        """For ever: whatever came while the last batch was being written is the next batch."""
        loop = asyncio.get_running_loop()
        while True:
            while self._aside and self._aside[0][0] <= loop.time():
                self._waiting.append(heappop(self._aside)[2])
            if self._waiting:
                size = min(len(self._waiting), LARGEST_BATCH)
                await self._write([self._waiting.popleft() for _ in range(size)])
                continue
            await self._alarm.wait(self._aside[0][0] if self._aside else loop.time() + 3600)

    # Writing ------------------------------------------------------------------------------------

    async def _write(self, batch: Sequence[Settlement]) -> None:
        """Returns when each is written, known to be lost, or stands aside."""
        successes = sorted((one for one in batch if isinstance(one, Success)), key=_kind)
        for _, group in groupby(successes, key=_kind):
            await self._write_for_sure(list(group), self._write_successes)
        others = [one for one in batch if isinstance(one, Other)]
        if others:
            await self._write_for_sure(others, self._write_others)

    async def _write_for_sure(self, batch: Sequence[Settlement], write: _Write) -> None:
        """As `_write_apart`, until PostgreSQL has answered."""
        while True:
            await self._link.ready()
            try:
                # What was written before an answer was lost is found to be settled.
                await self._write_apart([one for one in batch if _key(one) in self._held], write)
            except Unreachable:
                continue
            except psycopg.Error as error:
                self._observer.on_settle_refused(_sentence(error))
                await asyncio.sleep(REFUSED_SECONDS)
                continue
            return

    async def _write_apart(self, batch: Sequence[Settlement], write: _Write) -> None:
        """As `write`, but a row that cannot be stored does not take its neighbours along, nor one
        whose steps have to wait for somebody's open transaction."""
        if not batch:
            return
        try:
            await self._write_with_history(batch, write)
        except (psycopg.Error, ValueError) as error:
            waits = isinstance(error, errors.LockNotAvailable) and _has_steps(batch[0])
            if not waits and not _is_about_a_row(error):
                raise
            if len(batch) == 1 and waits:
                self._step_aside(batch[0], LOCKED_SECONDS)
            elif len(batch) == 1:
                await self._write_plainly(batch[0], error)
            else:
                half = len(batch) // 2
                await self._write_apart(batch[:half], write)
                await self._write_apart(batch[half:], write)

    async def _write_with_history(self, batch: Sequence[Settlement], write: _Write) -> None:
        """As `write`; makes today's partition of history if there is none: nobody has led for
        days."""
        try:
            await write(batch)
        except errors.CheckViolation as error:
            if error.diag.constraint_name is not None:
                raise
            await self._link.execute("make_history_partitions", "SELECT make_history_partitions()")
            await write(batch)

    async def _write_plainly(self, bad: Settlement, error: Exception) -> None:
        """The same end in words that any database can keep."""
        self._observer.on_unstorable(bad, _sentence(error))
        try:
            await self._write_with_history([_plain(bad, error)], self._write_others)
        except (psycopg.Error, ValueError) as again:
            if not _is_about_a_row(again):
                raise
            # Not its words then: something else is wrong with this job, and with no other.
            self._observer.on_settle_refused(_sentence(again))
            self._step_aside(bad, REFUSED_SECONDS)

    async def _write_successes(self, batch: Sequence[Settlement]) -> None:
        rows = await self._link.run(
            "settle_succeeded",
            jobs=[one.claimed.job_id for one in batch],
            tokens=[one.claimed.token for one in batch],
            results=[one.result if isinstance(one, Success) else None for one in batch],
            steps=[one.steps if isinstance(one, Success) else None for one in batch],
            most_bytes=self._most_args_bytes,
            session=batch[0].claimed.session_id,
            progress=_progress(batch),
        )
        done = {(row[0], row[1]) for row in rows}
        missing = []
        for one in batch:
            if (one.claimed.job_id, one.claimed.token) in done:
                self._settled(one, "succeeded")
            else:
                missing.append(one)
        if missing:
            await self._ask_about(missing)

    async def _write_others(self, batch: Sequence[Settlement]) -> None:
        endings = [one.ending.to_dict() for one in batch if isinstance(one, Other)]
        rows = await self._link.run(
            "settle_ended",
            jobs=[one.claimed.job_id for one in batch],
            endings=json.dumps(endings, allow_nan=False),
        )
        places = {(row[0], row[1]): (row[2], row[5]) for row in rows}
        missing = []
        for one in batch:
            found = places.get((one.claimed.job_id, one.claimed.token))
            if found is not None:
                place, requested_ago = found
                if isinstance(one, Other):
                    one.requested_ago = requested_ago
                self._settled(one, place)
            else:
                missing.append(one)
        if missing:
            await self._ask_about(missing)

    async def _ask_about(self, missing: Sequence[Settlement]) -> None:
        """Nothing came back for these: locked, settled before, or lost?"""
        rows = await self._link.run(
            "settle_missing",
            jobs=[one.claimed.job_id for one in missing],
            sessions=[one.claimed.session_id for one in missing],
            tokens=[one.claimed.token for one in missing],
        )
        fates = {(row[0], row[1]): row[2:] for row in rows}
        for one in missing:
            locked, outcome, state = fates[one.claimed.job_id, one.claimed.token]
            if locked:
                self._step_aside(one, LOCKED_SECONDS)
            elif state == "succeeded":  # by the handler itself perhaps, whatever it did then
                self._settled(one, "succeeded")
            elif isinstance(one, Other) and outcome == one.ending.outcome:
                # Also what never started: it leaves no trace, and there was nothing to lose.
                self._settled(one, "cancelled" if state == "cancelled" else one.ending.place)
            else:
                self._lost(one)

    # What has become of them --------------------------------------------------------------------

    def _settled(self, one: Settlement, place: str) -> None:
        self._forget(one)
        self._observer.on_settled(one, place)

    def _lost(self, one: Settlement) -> None:
        self._forget(one)
        self._observer.on_lost(one)

    def _forget(self, one: Settlement) -> None:
        self._held.discard(_key(one))
        if not self._held:
            self._idle.set()

    def _step_aside(self, one: Settlement, seconds: float) -> None:
        wait = min(seconds * 2.0 ** min(one.tries, 10), REFUSED_SECONDS)
        one.tries += 1
        due = asyncio.get_running_loop().time() + wait
        heappush(self._aside, (due, next(self._order), one))


def _most_args_bytes() -> int | None:
    """Of a step: what its slot, which has this environment, allows."""
    try:
        return max_args_bytes()
    except InvalidJob:  # the slot says so, to whoever enqueues
        return None


def _key(one: Settlement) -> tuple[int, int]:
    return one.claimed.session_id, one.claimed.token


def _kind(one: Success) -> tuple[int, bool]:
    """What goes into one statement. Steps apart: they may have to wait, or be refused."""
    return one.claimed.session_id, one.steps is not None


def _has_steps(one: Settlement) -> bool:
    return isinstance(one, Success) and one.steps is not None


def _progress(batch: Sequence[Settlement]) -> str:
    """By token, of the few that said something."""
    said = {
        str(one.claimed.token): one.progress
        for one in batch
        if isinstance(one, Success) and one.progress is not None
    }
    return json.dumps(said) if said else "{}"


def _is_about_a_row(error: Exception) -> bool:
    """Whether PostgreSQL, or the way to it, refused what one of the rows holds."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return isinstance(error, psycopg.DataError | ValueError)
    return state[:2] in ("22", "23", "54")  # data, integrity, limits


def _plain(bad: Settlement, error: Exception) -> Other:
    """How it ended, without anything that came from the handler."""
    claimed = bad.claimed
    if isinstance(bad, Success):
        ending = Ending(claimed.job_id, claimed.session_id, claimed.token, "dead", "failed", 1)
        ending.failed = True
        ending.failure_class = ending.error_class = "unstorable_result"
        ending.error = "The job succeeded, but PostgreSQL could not store its result."
        if bad.steps is not None:
            ending.failure_class = ending.error_class = UNSTORABLE_STEP
            ending.error = _of_steps(error)
        return Other(claimed, ending)
    old = bad.ending
    ending = Ending(
        claimed.job_id, claimed.session_id, claimed.token, old.place, old.outcome, old.spent,
        old.crashed, None, old.failed, old.lane_version,
    )  # fmt: skip
    plain = Other(claimed, ending, bad.took, bad.counts, bad.poison)
    if old.delay is not None:  # perhaps it is what could not be stored
        ending.delay = old.delay if 0 <= old.delay <= PLAIN_DELAY_SECONDS else PLAIN_DELAY_SECONDS
    if old.failed:
        ending.failure_class = ending.error_class = "unstorable_result"
        ending.error = "The attempt failed, but PostgreSQL could not store its error."
    return plain


def _of_steps(error: Exception) -> str:
    if isinstance(error, errors.InvalidParameterValue) and error.diag.message_primary:
        # Our own sentence, of enqueue_many.
        why = storable(redact(error.diag.message_primary), TEXT_LIMIT)
        return f"The handler returned, but of what it had enqueued with ctx.enqueue {why}"
    return (
        "The handler returned, but PostgreSQL could not store what it had enqueued with "
        "ctx.enqueue, or its result."
    )


def _sentence(error: BaseException) -> str:
    state = getattr(error, "sqlstate", None)
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{line} ({state})" if state else line
