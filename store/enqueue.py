"""Enqueue: the only way in, on the caller's connection and in the caller's transaction.

Nothing exists before the caller's commit, and a rollback takes it all back; so this module never
commits, never rolls back and opens no connection. What is wrong with a job is found here, before
anything is sent, because PostgreSQL's refusal would abort the caller's transaction. Everything then
travels as one JSON array to the schema's function `enqueue_many`, in one statement.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Unpack, overload

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from jobctl.store.errors import InvalidJob, SchemaError
from jobctl.store.json_values import max_args_bytes
from jobctl.store.new_job import AllOptions, NewJob, new_job
from jobctl.store.schema_name import schema_from_environment
from jobctl.store.statements import sql as statement

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
#: What `enqueue_many` takes: `NewJob`s, or dicts with the same words, `{"type": ..., "args": ...}`.
Jobs = Iterable[NewJob | Mapping[str, Any]]

#: PostgreSQL refuses a message above 1 GiB and builds several copies of what is smaller.
CHUNK_BYTES = 64 * 1024 * 1024
#: Never kept prepared on the caller's connection: a pooler in transaction mode gives the next
#: transaction another server, which has never heard of it.
_PREPARE = False


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
    the job (nothing was sent), SchemaError when the schema is missing, and psycopg's errors.
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
    return await enqueue_one(require_async(conn, "aenqueue"), new_job(type, args, **options))


@overload
def enqueue_one(conn: Connection, job: NewJob) -> int: ...
@overload
def enqueue_one(conn: AsyncConnection, job: NewJob) -> Awaitable[int]: ...
def enqueue_one(conn: Connection | AsyncConnection, job: NewJob) -> int | Awaitable[int]:
    """Enqueues one job that has been checked already."""
    if isinstance(conn, psycopg.AsyncConnection):
        return _first(_send_async(conn, [job]))
    if isinstance(conn, psycopg.Connection):
        return _send(conn, [job])[0]
    raise _not_a_connection(conn)


@overload
def enqueue_many(conn: Connection, jobs: Jobs, /) -> list[int]: ...
@overload
def enqueue_many(conn: AsyncConnection, jobs: Jobs, /) -> Awaitable[list[int]]: ...
def enqueue_many(
    conn: Connection | AsyncConnection, jobs: Jobs, /
) -> list[int] | Awaitable[list[int]]:
    """Enqueues any number of jobs, all or none, and returns their ids in order.

    Set-based: tens of thousands in one statement. A key that comes twice is one job. Raises as
    `enqueue` does, naming the position of the job that is wrong.
    """
    if isinstance(conn, psycopg.AsyncConnection):
        return _send_async(conn, _checked(jobs))
    if isinstance(conn, psycopg.Connection):
        return _send(conn, _checked(jobs))
    raise _not_a_connection(conn)


async def aenqueue_many(conn: AsyncConnection, jobs: Jobs, /) -> list[int]:
    """`enqueue_many`, for those who like to see that a coroutine is one."""
    return await enqueue_many(require_async(conn, "aenqueue_many"), jobs)


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


def _send(conn: Connection, jobs: Sequence[NewJob]) -> list[int]:
    text, limit = _statement(schema_from_environment()), max_args_bytes()
    chunks = list(_chunks(jobs))
    if len(chunks) > 1 and _is_unprotected(conn):
        with conn.transaction():  # autocommit: all or none all the same
            return _send_chunks(conn, text, limit, chunks)
    return _send_chunks(conn, text, limit, chunks)


def _send_chunks(
    conn: Connection, text: sql.Composed, limit: int, chunks: Sequence[str]
) -> list[int]:
    ids: list[int] = []
    # A plain cursor: the connection's own kind may make dicts, or read statements another way.
    with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        for chunk in chunks:
            try:
                cursor.execute(text, {"jobs": chunk, "limit": limit}, prepare=_PREPARE)
                ids.extend(row[1] for row in cursor)
            except psycopg.Error as error:
                raise _explained(error) from error
    return ids


async def _send_async(conn: AsyncConnection, jobs: Sequence[NewJob]) -> list[int]:
    text, limit = _statement(schema_from_environment()), max_args_bytes()
    chunks = list(_chunks(jobs))
    if len(chunks) > 1 and _is_unprotected(conn):
        async with conn.transaction():
            return await _send_chunks_async(conn, text, limit, chunks)
    return await _send_chunks_async(conn, text, limit, chunks)


async def _send_chunks_async(
    conn: AsyncConnection, text: sql.Composed, limit: int, chunks: Sequence[str]
) -> list[int]:
    ids: list[int] = []
    async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
        for chunk in chunks:
            try:
                await cursor.execute(text, {"jobs": chunk, "limit": limit}, prepare=_PREPARE)
                ids.extend([row[1] async for row in cursor])
            except psycopg.Error as error:
                raise _explained(error) from error
    return ids


async def _first(ids: Awaitable[list[int]]) -> int:
    return (await ids)[0]


def _is_unprotected(conn: Connection | AsyncConnection) -> bool:
    return conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE


def _chunks(jobs: Sequence[NewJob]) -> Iterator[str]:
    """JSON arrays of at most CHUNK_BYTES, in order."""
    texts: list[str] = []
    size = 0
    for job in jobs:
        if texts and size + len(job.text) > CHUNK_BYTES:
            yield f"[{','.join(texts)}]"
            texts, size = [], 0
        texts.append(job.text)
        size += len(job.text) + 1
    if texts:
        yield f"[{','.join(texts)}]"


@lru_cache(maxsize=64)
def _statement(schema: str) -> sql.Composed:
    # psycopg reads a % as the start of a parameter, in a quoted name too.
    name = sql.Identifier(schema.replace("%", "%%"))
    return sql.SQL(statement("enqueue_many")).format(schema=name)


def _explained(error: psycopg.Error) -> Exception:
    """Our sentence for what PostgreSQL refused; its own error when we know none."""
    said = error.diag.message_primary or str(error)
    if isinstance(error, psycopg.errors.InvalidSchemaName | psycopg.errors.UndefinedFunction):
        schema = schema_from_environment()
        return SchemaError(
            f'this database has no schema "{schema}" that jobs could be enqueued into ({said}): '
            "run jobctl migrate, or set JOBCTL_SCHEMA to the schema's name"
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return SchemaError(
            f"this database user may not enqueue ({said}): let the schema's owner grant USAGE on "
            "the schema, its sequences and its functions, and the rights on its tables"
        )
    if isinstance(
        error, psycopg.errors.InvalidParameterValue | psycopg.errors.ProgramLimitExceeded
    ):
        return InvalidJob(said)
    return error


def require_async(conn: object, name: str) -> AsyncConnection:
    if isinstance(conn, psycopg.AsyncConnection):
        return conn
    if isinstance(conn, psycopg.Connection):
        raise TypeError(
            f"jobctl.{name} needs a psycopg.AsyncConnection; with this one call enqueue"
        )
    raise _not_a_connection(conn)


def _not_a_connection(conn: object) -> TypeError:
    kind = f"{type(conn).__module__}.{type(conn).__qualname__}"
    hint = ""
    if isinstance(conn, psycopg.Cursor | psycopg.AsyncCursor):
        hint = "; of a cursor, pass cursor.connection"
    elif hasattr(conn, "getconn"):
        hint = "; of a pool, pass the connection: with pool.connection() as conn"
    return TypeError(
        f"jobs are enqueued on a psycopg.Connection or psycopg.AsyncConnection, not on {kind}{hint}"
    )
