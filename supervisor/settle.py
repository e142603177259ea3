"""Settle: the one door through which every attempt ends.

Whatever ended an attempt arrives here as a success or as an `Ending`, is written in batches -
whatever came while the last batch was being written - and is not forgotten until PostgreSQL has
said that it is written, or that the claim was no longer ours. An outage delays what is settled and
loses none of it. One row never fails a batch: what is locked is skipped and comes back, what
cannot be stored is settled as a failure that can.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import psycopg
from psycopg import errors

from jobctl.store.link import Link, Unreachable
from jobctl.supervisor.alarm import Alarm
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.outcomes import Ending

#: The most that one statement settles.
LARGEST_BATCH = 500
#: Rows that somebody else has locked are tried again after this.
LOCKED_SECONDS = 0.05
#: What PostgreSQL refuses for its own reasons (a full disk, a lock, a switch-over) is tried again.
REFUSED_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class Success:
    """The handler returned; `result` is JSON text, checked where it was made."""

    claimed: Claimed
    result: str | None = None


@dataclass(slots=True, eq=False)
class Other:
    """Any ending that is not a plain success."""

    claimed: Claimed
    ending: Ending


Settlement = Success | Other
_Write = Callable[[Sequence[Settlement]], Coroutine[Any, Any, list[Settlement]]]


class Observer(Protocol):
    """Whom to tell what has become of a claim, once it is known."""

    def on_settled(self, settlement: Settlement, place: str) -> None:
        """Written. `place` is 'succeeded', or where the job went."""

    def on_lost(self, settlement: Settlement) -> None:
        """The claim was no longer ours: nothing was changed."""

    def on_unstorable(self, settlement: Settlement, error: str) -> None:
        """PostgreSQL refused this one row; it is settled as a failure that says so."""

    def on_settle_refused(self, error: str) -> None:
        """PostgreSQL refused a batch for reasons of its own; it will be tried again."""


class Settler:
    """Writes endings over one link of its own."""

    def __init__(self, link: Link, observer: Observer) -> None:
        self._link = link
        self._observer = observer
        self._waiting: list[Settlement] = []
        self._writing: list[Settlement] = []
        self._alarm = Alarm()
        self._idle = asyncio.Event()
        self._idle.set()

    def settle(self, settlement: Settlement) -> None:
        """Takes it over; returns at once."""
        self._waiting.append(settlement)
        self._idle.clear()
        self._alarm.set()

    def tokens(self) -> set[tuple[int, int]]:
        """(session, token) of everything that is not written yet."""
        held = (*self._waiting, *self._writing)
        return {(one.claimed.session_id, one.claimed.token) for one in held}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._writing)

    async def written(self) -> None:
        """Returns once everything that was taken over is written."""
        await self._idle.wait()

    async def run(self) -> None:
        """For ever: whatever came while the last batch was being written is the next batch."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._waiting:
                self._idle.set()
                await self._alarm.wait(loop.time() + 3600)
                continue
            self._writing = self._waiting[:LARGEST_BATCH]
            del self._waiting[:LARGEST_BATCH]
            await self._write_until_done()

    async def _write_until_done(self) -> None:
        while self._writing:
            await self._link.ready()
            try:
                left = await self._write(self._writing)
            except Unreachable:
                continue
            except psycopg.Error as error:
                self._observer.on_settle_refused(_sentence(error))
                if isinstance(error, errors.ReadOnlySqlTransaction | errors.InterfaceError):
                    self._link.drop()  # a standby now, or gone: look for the primary
                await asyncio.sleep(REFUSED_SECONDS)
                continue
            self._writing = left
            if left:
                await asyncio.sleep(LOCKED_SECONDS)

    async def _write(self, batch: Sequence[Settlement]) -> list[Settlement]:
        """Writes what can be written; returns what somebody else has locked."""
        left: list[Settlement] = []
        successes = [one for one in batch if isinstance(one, Success)]
        others = [one for one in batch if isinstance(one, Other)]
        successes.sort(key=_session)
        for _, group in groupby(successes, key=_session):
            left += await self._write_safely(list(group), self._write_successes)
        if others:
            left += await self._write_safely(others, self._write_others)
        return left

    async def _write_safely(self, batch: Sequence[Settlement], write: _Write) -> list[Settlement]:
        """As `write`, but a row that cannot be stored does not take its neighbours along."""
        try:
            return await write(batch)
        except errors.CheckViolation:
            # No partition of history for today: nobody has led for days. Make it and go on.
            await self._link.execute("make_history_partitions", "SELECT make_history_partitions()")
            return await write(batch)
        except (psycopg.DataError, errors.ProgramLimitExceeded, UnicodeError) as error:
            if len(batch) == 1:
                (bad,) = batch
                self._observer.on_unstorable(bad, _sentence(error))
                return await self._write_others([_plain(bad)])
            half = len(batch) // 2
            left = await self._write_safely(batch[:half], write)
            return left + await self._write_safely(batch[half:], write)

    async def _write_successes(self, batch: Sequence[Settlement]) -> list[Settlement]:
        results = {
            one.claimed.job_id: one.result
            for one in batch
            if isinstance(one, Success) and one.result is not None
        }
        rows = await self._link.run(
            "settle_succeeded",
            jobs=[one.claimed.job_id for one in batch],
            tokens=[one.claimed.token for one in batch],
            session=batch[0].claimed.session_id,
            with_result=list(results),
            results=list(results.values()),
        )
        done = {row[0] for row in rows}
        missing = []
        for one in batch:
            if one.claimed.job_id in done:
                self._observer.on_settled(one, "succeeded")
            else:
                missing.append(one)
        return await self._ask_about(missing) if missing else []

    async def _write_others(self, batch: Sequence[Settlement]) -> list[Settlement]:
        endings = [one.ending.to_dict() for one in batch if isinstance(one, Other)]
        rows = await self._link.run(
            "settle_ended",
            jobs=[one.claimed.job_id for one in batch],
            endings=json.dumps(endings, allow_nan=False),
        )
        places = {(row[0], row[1]): row[2] for row in rows}
        missing = []
        for one in batch:
            place = places.get((one.claimed.job_id, one.claimed.token))
            if place is not None:
                self._observer.on_settled(one, place)
            else:
                missing.append(one)
        return await self._ask_about(missing) if missing else []

    async def _ask_about(self, missing: Sequence[Settlement]) -> list[Settlement]:
        """Nothing came back for these: locked, settled before, or lost?"""
        rows = await self._link.run(
            "settle_missing",
            jobs=[one.claimed.job_id for one in missing],
            sessions=[one.claimed.session_id for one in missing],
            tokens=[one.claimed.token for one in missing],
        )
        fates = {(row[0], row[1]): row[2] for row in rows}
        locked = []
        for one in missing:
            match fates.get((one.claimed.job_id, one.claimed.token)):
                case "locked":
                    locked.append(one)
                case "settled":
                    place = "succeeded" if isinstance(one, Success) else one.ending.place
                    self._observer.on_settled(one, place)
                case _:
                    self._observer.on_lost(one)
        return locked


def _session(one: Settlement) -> int:
    return one.claimed.session_id


def _plain(bad: Settlement) -> Other:
    """The same end in words that any database can keep."""
    claimed = bad.claimed
    if isinstance(bad, Success):
        ending = Ending(claimed.job_id, claimed.session_id, claimed.token, "dead", "failed", 1)
        ending.failed = True
        ending.failure_class = ending.error_class = "unstorable_result"
        ending.error = "The job succeeded, but PostgreSQL could not store its result."
        return Other(claimed, ending)
    old = bad.ending
    ending = Ending(
        claimed.job_id, claimed.session_id, claimed.token, old.place, old.outcome, old.spent,
        old.crashed, old.delay, old.failed, old.lane_version,
    )  # fmt: skip
    if old.failed:
        ending.failure_class = ending.error_class = "unstorable_error"
        ending.error = "The attempt failed, but PostgreSQL could not store its error."
    return Other(claimed, ending)


def _sentence(error: BaseException) -> str:
    state = getattr(error, "sqlstate", None)
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{line} ({state})" if state else line
