"""Enqueue: the only way in, on the caller's connection and in the caller's transaction.

Nothing exists before the caller's commit, and a rollback takes it all back; so this module never
commits, never rolls back and opens no connection; whose library the connection is of is the
business of `callers.py`. What is wrong with a job is found here, before anything is sent, because
PostgreSQL's refusal would abort the caller's transaction. Everything then travels as one JSON array
to the schema's function `enqueue_many`, in one statement.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Unpack, overload

import psycopg

from jobctl.store import callers, tracing
from jobctl.store.callers import AsyncConnection, Connection
from jobctl.store.errors import InvalidJob
from jobctl.store.items import Chunk, chunks_of
from jobctl.store.json_values import max_args_bytes
from jobctl.store.new_job import AllOptions, NewJob, new_job

#: What `enqueue_many` takes: `NewJob`s, or dicts with the same words, `{"type": ..., "args": ...}`.
Jobs = Iterable[NewJob | Mapping[str, Any]]

_REFUSED_VALUE, _REFUSED_SIZE = "22023", "54000"


@overload
def enqueue(
    conn: Connection,
    /,
    type: str,
    args: Mapping[str, Any] | None = None,
    **options: Unpack[AllOptions],
) -> int: ...
@overload
def enqueue(
    conn: AsyncConnection,
    /,
    type: str,
    args: Mapping[str, Any] | None = None,
    **options: Unpack[AllOptions],
) -> Awaitable[int]: ...
def enqueue(
    conn: Connection | AsyncConnection,
    /,
    type: str,
    args: Mapping[str, Any] | None = None,
    **options: Unpack[AllOptions],
) -> int | Awaitable[int]:
    """Enqueues one job and returns its id; with an async connection, an awaitable of it.

    An existing `key` of the same type returns the id of the job that holds it. Options that are not
    given are the type's as its newest code declares them. Raises InvalidJob for what is wrong with
    the job (nothing was sent), SchemaError when the schema is missing, and the errors of the
    connection's library.
    """
    return enqueue_one(conn, new_job(type, args, **options))


async def aenqueue(
    conn: AsyncConnection,
    /,
    type: str,
    args: Mapping[str, Any] | None = None,
    **options: Unpack[AllOptions],
) -> int:
    """`enqueue`, for those who like to see that a coroutine is one."""
    callers.require_async(conn, "aenqueue", "enqueue")
    return await enqueue_one(conn, new_job(type, args, **options))


@overload
def enqueue_one(conn: Connection, job: NewJob) -> int: ...
@overload
def enqueue_one(conn: AsyncConnection, job: NewJob) -> Awaitable[int]: ...
def enqueue_one(conn: Connection | AsyncConnection, job: NewJob) -> int | Awaitable[int]:
    """Enqueues one job that has been checked already."""
    if callers.kind_of(conn).is_async:
        return _first(_send_async(conn, [job]))
    return _send(conn, [job])[0]


@overload
def enqueue_many(conn: Connection, jobs: Jobs, /) -> list[int]: ...
@overload
def enqueue_many(conn: AsyncConnection, jobs: Jobs, /) -> Awaitable[list[int]]: ...
def enqueue_many(
    conn: Connection | AsyncConnection, jobs: Jobs, /
) -> list[int] | Awaitable[list[int]]:
    """Enqueues any number of jobs, all or none, and returns their ids in order.

    Set-based: tens of thousands in one statement. A key that comes twice is one job. With
    `after=[item]` a job comes after one that stands before it here. Raises as `enqueue` does,
    naming the position of the job that is wrong.
    """
    if callers.kind_of(conn).is_async:
        return _send_async(conn, _checked(jobs))
    return _send(conn, _checked(jobs))


async def aenqueue_many(conn: AsyncConnection, jobs: Jobs, /) -> list[int]:
    """`enqueue_many`, for those who like to see that a coroutine is one."""
    callers.require_async(conn, "aenqueue_many", "enqueue_many")
    return await enqueue_many(conn, jobs)


def _checked(jobs: Jobs) -> list[NewJob]:
    checked = []
    for position, job in enumerate(jobs, start=1):
        if isinstance(job, NewJob):
            checked.append(job)
            continue
        if not isinstance(job, Mapping) or "type" not in job:
            raise TypeError(
                f"job {position} of this call must be an item of a job type "
                f"(send_invoice.item(...)) or a dict with at least 'type', not {job!r:.80}"
            )
        fields = dict(job)
        try:
            checked.append(new_job(fields.pop("type"), fields.pop("args", None), **fields))
        except InvalidJob as error:
            raise InvalidJob(f"job {position} of this call: {error}") from error
    return checked


def _send(conn: Connection | AsyncConnection, jobs: Sequence[NewJob]) -> list[int]:
    if tracing.producer is None:
        return _send_all(conn, jobs)
    with tracing.producer(jobs) as traceparent:
        return _send_all(conn, jobs, traceparent)


def _send_all(
    conn: Connection | AsyncConnection, jobs: Sequence[NewJob], traceparent: str | None = None
) -> list[int]:
    chunks = chunks_of(jobs)
    if len(chunks) > 1 and callers.commits_each(conn):
        if not isinstance(conn, psycopg.Connection):
            raise _too_large_to_commit(len(chunks))
        with conn.transaction():  # autocommit: all or none all the same
            return _send_chunks(conn, chunks, traceparent)
    return _send_chunks(conn, chunks, traceparent)


def _send_chunks(conn: object, chunks: Sequence[Chunk], traceparent: str | None) -> list[int]:
    text = callers.in_schema("enqueue_many")
    ids: list[int] = []
    for chunk in chunks:
        try:
            parameters = _parameters(chunk.text(ids, traceparent))
            ids.extend(row[1] for row in callers.run(conn, text, parameters))
        except Exception as error:  # each library has its own base class
            _explain(error)
            raise
    return ids


async def _send_async(conn: Connection | AsyncConnection, jobs: Sequence[NewJob]) -> list[int]:
    if tracing.producer is None:
        return await _send_all_async(conn, jobs)
    with tracing.producer(jobs) as traceparent:
        return await _send_all_async(conn, jobs, traceparent)


async def _send_all_async(
    conn: Connection | AsyncConnection, jobs: Sequence[NewJob], traceparent: str | None = None
) -> list[int]:
    chunks = chunks_of(jobs)
    if len(chunks) > 1 and await callers.commits_each_async(conn):
        if not isinstance(conn, psycopg.AsyncConnection):
            raise _too_large_to_commit(len(chunks))
        async with conn.transaction():
            return await _send_chunks_async(conn, chunks, traceparent)
    return await _send_chunks_async(conn, chunks, traceparent)


async def _send_chunks_async(
    conn: object, chunks: Sequence[Chunk], traceparent: str | None
) -> list[int]:
    text = callers.in_schema("enqueue_many")
    ids: list[int] = []
    for chunk in chunks:
        try:
            parameters = _parameters(chunk.text(ids, traceparent))
            ids.extend(row[1] for row in await callers.run_async(conn, text, parameters))
        except Exception as error:  # each library has its own base class
            _explain(error)
            raise
    return ids


def _parameters(chunk: str) -> dict[str, Any]:
    return {"jobs": chunk, "limit": max_args_bytes()}


async def _first(ids: Awaitable[list[int]]) -> int:
    return (await ids)[0]


def _too_large_to_commit(chunks: int) -> InvalidJob:
    return InvalidJob(
        f"these jobs need {chunks} statements, and this connection commits each by itself, so that "
        "some could be lost: begin a transaction, or pass fewer at a time; nothing was sent"
    )


def _explain(error: Exception) -> None:
    """Raises our sentence for a job that PostgreSQL refused."""
    code, said = callers.refusal(error) or ("", "")
    if code in (_REFUSED_VALUE, _REFUSED_SIZE):
        raise InvalidJob(said) from error
