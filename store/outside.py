"""From outside a handler: what has become of a job, waiting for it, cancelling it, replaying it.

On the caller's connection and in the caller's transaction, like `enqueue`; the state is what the
database says, and nobody asks a worker. The same functions take an async connection and are awaited
then. Nothing here commits or rolls back what is the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
import random
import time
from collections.abc import Awaitable
from typing import Any, Final, Literal, NoReturn, cast, overload

from psycopg.pq import TransactionStatus

from jobctl.store import callers
from jobctl.store.callers import AsyncConnection, Connection, Kind, Row
from jobctl.store.durations import Duration, parse_duration
from jobctl.store.errors import CannotWait, NoSuchJob, WaitTimeout
from jobctl.store.job_status import JobStatus

#: What has become of a cancel. With "cancel_requested" it runs, and has been asked to end; the
#: others are final.
CancelAnswer = Literal["cancelled", "cancel_requested", "already_succeeded", "already_dead"]

#: How often `wait` looks: soon at first, then calmly; each time a fifth more or less.
FIRST_LOOK, LAST_LOOK, GROWTH = 0.02, 1.0, 1.5

#: A bigint's, which an id is.
LARGEST_ID: Final = 2**63 - 1


# Asked for one job ------------------------------------------------------------------------------


@overload
def get(conn: Connection, id: int, /) -> JobStatus: ...
@overload
def get(conn: AsyncConnection, id: int, /) -> Awaitable[JobStatus]: ...
def get(conn: Connection | AsyncConnection, id: int, /) -> JobStatus | Awaitable[JobStatus]:
    """What the view `jobs` says of it now. Raises NoSuchJob."""
    return callers.ask(
        conn, callers.in_schema("get_job"), {"id": _id(id)}, lambda rows: _status(id, rows)
    )


async def aget(conn: AsyncConnection, id: int, /) -> JobStatus:
    """`get`, for those who like to see that a coroutine is one."""
    callers.require_async(conn, "aget", "get")
    return await get(conn, id)


@overload
def cancel(
    conn: Connection,
    id: int,
    /,
    *,
    reason: str | None = None,
    actor: str | None = None,
    force_after: Duration | None = None,
) -> CancelAnswer: ...
@overload
def cancel(
    conn: AsyncConnection,
    id: int,
    /,
    *,
    reason: str | None = None,
    actor: str | None = None,
    force_after: Duration | None = None,
) -> Awaitable[CancelAnswer]: ...
def cancel(
    conn: Connection | AsyncConnection,
    id: int,
    /,
    *,
    reason: str | None = None,
    actor: str | None = None,
    force_after: Duration | None = None,
) -> CancelAnswer | Awaitable[CancelAnswer]:
    """Cancels a job, once the caller's transaction commits, and says what that means.

    "cancelled": it waited, and never runs (again). "cancel_requested": it runs, or its type's hook
    is still to run; it will not run again whatever becomes of this attempt, which may yet succeed.
    "already_succeeded", "already_dead": too late. `force_after`: then the process of what still
    runs is killed. `reason`, and `actor` (else the database's user), go to the audit log. Raises
    NoSuchJob, and ValueError for a `force_after` that is not a duration, or text that PostgreSQL
    cannot store.
    """
    grace = None if force_after is None else parse_duration(force_after).total_seconds()
    return callers.ask(
        conn,
        callers.in_schema("cancel_job"),
        {"id": _id(id), **_said(actor, reason), "force_after": grace},
        lambda rows: cast(CancelAnswer, _only(id, rows)[0]),
    )


async def acancel(
    conn: AsyncConnection,
    id: int,
    /,
    *,
    reason: str | None = None,
    actor: str | None = None,
    force_after: Duration | None = None,
) -> CancelAnswer:
    """`cancel`, for those who like to see that a coroutine is one."""
    callers.require_async(conn, "acancel", "cancel")
    return await cancel(conn, id, reason=reason, actor=actor, force_after=force_after)


@overload
def replay(
    conn: Connection, id: int, /, *, reason: str | None = None, actor: str | None = None
) -> bool: ...
@overload
def replay(
    conn: AsyncConnection, id: int, /, *, reason: str | None = None, actor: str | None = None
) -> Awaitable[bool]: ...
def replay(
    conn: Connection | AsyncConnection,
    id: int,
    /,
    *,
    reason: str | None = None,
    actor: str | None = None,
) -> bool | Awaitable[bool]:
    """Queues a dead job again with new budgets; its attempts are kept.

    False: it is not dead, perhaps because somebody else was quicker. Raises NoSuchJob.
    """
    return callers.ask(
        conn,
        callers.in_schema("replay_job"),
        {"id": _id(id), **_said(actor, reason)},
        lambda rows: bool(_only(id, rows)[0]),
    )


async def areplay(
    conn: AsyncConnection, id: int, /, *, reason: str | None = None, actor: str | None = None
) -> bool:
    """`replay`, for those who like to see that a coroutine is one."""
    callers.require_async(conn, "areplay", "replay")
    return await replay(conn, id, reason=reason, actor=actor)


# Waiting ----------------------------------------------------------------------------------------


@overload
def wait(conn: Connection, id: int, /, *, timeout: Duration | None = None) -> JobStatus: ...
@overload
def wait(
    conn: AsyncConnection, id: int, /, *, timeout: Duration | None = None
) -> Awaitable[JobStatus]: ...
def wait(
    conn: Connection | AsyncConnection, id: int, /, *, timeout: Duration | None = None
) -> JobStatus | Awaitable[JobStatus]:
    """Waits until a job is over: succeeded, dead, cancelled or discarded; returns how it is then.

    It looks now and then, each time in a transaction of its own. On a connection that is in a
    transaction it looks once and raises CannotWait if the job is not over: what that transaction
    has enqueued runs only after its commit, and what it has seen it may go on seeing. Raises
    NoSuchJob, and WaitTimeout (a TimeoutError) after `timeout`, with the last `status`.
    """
    seconds = None if timeout is None else parse_duration(timeout).total_seconds()
    if callers.kind_of(conn).is_async:
        return _wait_async(conn, id, seconds)
    looks = _Looks(id, seconds)
    while not looks.enough(_look(conn, id)):
        if _is_in_transaction(conn):
            looks.refuse()
        time.sleep(looks.pause())  # endings are not announced: a cost of every job else
    return looks.status


async def await_(
    conn: AsyncConnection,
    id: int,
    /,
    *,
    timeout: Duration | None = None,  # noqa: ASYNC109 - as wait has it; the last status comes along
) -> JobStatus:
    """`wait`, for those who like to see that a coroutine is one."""
    callers.require_async(conn, "await_", "wait")
    return await wait(conn, id, timeout=timeout)


async def _wait_async(conn: object, id: int, seconds: float | None) -> JobStatus:
    looks = _Looks(id, seconds)
    while not looks.enough(await _look_async(conn, id)):
        if _is_in_transaction(conn):
            looks.refuse()
        await asyncio.sleep(looks.pause())
    return looks.status


class _Looks:
    """When to look next, and when that is enough."""

    def __init__(self, id: int, seconds: float | None) -> None:
        self.status: JobStatus
        self._id = id
        self._seconds = seconds
        self._until = None if seconds is None else time.monotonic() + seconds
        self._pause = FIRST_LOOK

    def enough(self, status: JobStatus) -> bool:
        self.status = status
        return status.is_over

    def pause(self) -> float:
        """Seconds. Raises WaitTimeout."""
        left = float("inf") if self._until is None else self._until - time.monotonic()
        if left <= 0:
            raise WaitTimeout(
                f"job {self._id} is still {self.status.state} after {self._seconds:g} s",
                self.status,
            )
        pause = self._pause * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        self._pause = min(self._pause * GROWTH, LAST_LOOK)
        return min(pause, left)

    def refuse(self) -> NoReturn:
        raise CannotWait(
            f"job {self._id} is {self.status.state}, and this connection is in a transaction, "
            "which might never see it end: what the transaction has enqueued runs only once it is "
            "committed, and one that keeps its snapshot goes on seeing the job as it is now. "
            "Commit first, or wait on another connection"
        )


def _look(conn: Any, id: int) -> JobStatus:
    """In a transaction of its own, unless the caller has one."""
    with contextlib.ExitStack() as stack:
        if not _is_in_transaction(conn):
            match callers.kind_of(conn):
                case Kind.PSYCOPG:
                    stack.enter_context(conn.transaction())
                case Kind.SQLALCHEMY | Kind.SQLALCHEMY_SESSION:
                    stack.enter_context(conn.begin())
                case _:
                    pass  # each statement is one there
        return cast(JobStatus, get(conn, id))


async def _look_async(conn: Any, id: int) -> JobStatus:
    async with contextlib.AsyncExitStack() as stack:
        if not _is_in_transaction(conn):
            match callers.kind_of(conn):
                case Kind.ASYNC_PSYCOPG:
                    await stack.enter_async_context(conn.transaction())
                case Kind.ASYNC_SQLALCHEMY | Kind.ASYNC_SQLALCHEMY_SESSION:
                    await stack.enter_async_context(conn.begin())
                case _:
                    pass
        return await aget(conn, id)


def _is_in_transaction(conn: Any) -> bool:
    """Whether the caller has begun one."""
    match callers.kind_of(conn):
        case Kind.PSYCOPG | Kind.ASYNC_PSYCOPG:
            return bool(conn.info.transaction_status != TransactionStatus.IDLE)
        case Kind.DJANGO:
            return bool(conn.in_atomic_block or not conn.get_autocommit())
        case Kind.ASYNCPG:
            return bool(conn.is_in_transaction())
        case _:
            return bool(conn.in_transaction())


def _id(id: object) -> int:
    """As PostgreSQL is to have it, which would round 1.5 to another job, and end the caller's
    transaction over what is no number."""
    try:
        if isinstance(id, bool):
            raise TypeError
        number = operator.index(cast(int, id))
    except TypeError:
        raise TypeError(f"a job's id is an int, such as enqueue returns, not {id!r:.60}") from None
    if not -LARGEST_ID <= number <= LARGEST_ID:
        _no_such(number)
    return number


def _said(actor: object, reason: object) -> dict[str, str | None]:
    """For the audit log, if PostgreSQL can store it."""
    for name, text in (("actor", actor), ("reason", reason)):
        if text is None:
            continue
        if not isinstance(text, str):
            raise TypeError(f"{name} must be text, not {type(text).__name__}")
        if "\0" in text:
            raise ValueError(f"{name} has the character NUL, which PostgreSQL cannot store")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{name} has a lone surrogate, which is half a character: decode the text with "
                "errors='replace'"
            ) from None
    return {"actor": cast("str | None", actor), "reason": cast("str | None", reason)}


def _only(id: int, rows: list[Row]) -> Row:
    return rows[0] if rows else _no_such(id)


def _no_such(id: int) -> NoReturn:
    raise NoSuchJob(
        f"there is no job {id}; finished jobs are forgotten after history_keep, and one that "
        "somebody has enqueued exists for others once that is committed"
    )


def _status(id: int, rows: list[Row]) -> JobStatus:
    one, args, progress, result = _only(id, rows)
    return JobStatus.of((one, args, progress, result))
