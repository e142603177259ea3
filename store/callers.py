"""The caller's connection, whatever library it is of: one statement, in the caller's transaction.

psycopg, SQLAlchemy (connection or session, plain or asyncio), Django and asyncpg. Only psycopg is
imported; the others are known by the names of their classes. Nothing here commits, rolls back or
opens a connection. A statement is written as for psycopg, `%(name)s` with `%%` for a percent sign,
under rules that make it mean the same everywhere: every parameter has a cast, JSON comes in as
text (`%(jobs)s::text::jsonb`) and goes out as text, because some drivers read and write jsonb in
ways that the application has chosen.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from jobctl.store import rights
from jobctl.store.errors import SchemaError
from jobctl.store.schema_name import schema_from_environment
from jobctl.store.statements import sql as statement_called

T = TypeVar("T")
Row = tuple[Any, ...]
Parameters = Mapping[str, Any]


class Connection(Protocol):
    """A psycopg.Connection, a SQLAlchemy Connection or Session, a Django connection."""

    def commit(self) -> None: ...


class _Committing(Protocol):
    def commit(self) -> Coroutine[Any, Any, None]: ...


class _Asyncpg(Protocol):
    def is_in_transaction(self) -> bool: ...


#: A psycopg.AsyncConnection, a SQLAlchemy AsyncConnection or AsyncSession, an asyncpg connection.
AsyncConnection = _Committing | _Asyncpg


class Kind(Enum):
    """How a connection wants to be asked."""

    PSYCOPG = auto()
    SQLALCHEMY = auto()
    SQLALCHEMY_SESSION = auto()
    DJANGO = auto()
    ASYNC_PSYCOPG = auto()
    ASYNC_SQLALCHEMY = auto()
    ASYNC_SQLALCHEMY_SESSION = auto()
    ASYNCPG = auto()

    @property
    def is_async(self) -> bool:
        """Whether what it is asked has to be awaited."""
        return "ASYNC" in self.name


_CLASSES = {
    "sqlalchemy.engine.base.Connection": Kind.SQLALCHEMY,
    "sqlalchemy.orm.session.Session": Kind.SQLALCHEMY_SESSION,
    "sqlalchemy.orm.scoping.scoped_session": Kind.SQLALCHEMY_SESSION,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": Kind.ASYNC_SQLALCHEMY,
    "sqlalchemy.ext.asyncio.session.AsyncSession": Kind.ASYNC_SQLALCHEMY_SESSION,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": Kind.ASYNC_SQLALCHEMY_SESSION,
    "django.db.backends.base.base.BaseDatabaseWrapper": Kind.DJANGO,
    "django.utils.connection.ConnectionProxy": Kind.DJANGO,
    "asyncpg.connection.Connection": Kind.ASYNCPG,
    "asyncpg.pool.PoolConnectionProxy": Kind.ASYNCPG,
}
#: What people pass by mistake, and what they mean.
_HINTS = {
    "sqlalchemy.engine.base.Engine": "of an engine, pass the connection: "
    "with engine.begin() as conn",
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": "of an engine, pass the connection: "
    "async with engine.begin() as conn",
    "sqlalchemy.orm.session.sessionmaker": "of a sessionmaker, pass the session that it makes",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker": "of an async_sessionmaker, pass the "
    "session that it makes",
    "asyncpg.pool.Pool": "of a pool, pass the connection: async with pool.acquire() as conn",
    "asyncpg.transaction.Transaction": "of a transaction, pass its connection",
    "django.db.utils.ConnectionHandler": "pass one of them: connections['default']",
    "psycopg2.extensions.connection": "with psycopg2, use SQL: SELECT jobctl.enqueue(...)",
}


def in_schema(name: str) -> str:
    """The statement of this name with the schema that applications use in the place of {schema}."""
    return in_this_schema(name, schema_from_environment())


def kind_of(conn: object) -> Kind:
    """How this connection is asked. Raises TypeError, with the remedy, if it is none of those."""
    if isinstance(conn, psycopg.Connection):
        return Kind.PSYCOPG
    if isinstance(conn, psycopg.AsyncConnection):
        return Kind.ASYNC_PSYCOPG
    kind = next((_CLASSES[name] for name in _names(type(conn)) if name in _CLASSES), None)
    if kind is None:
        raise _not_a_connection(conn)
    return kind


def require_async(conn: object, name: str, otherwise: str) -> None:
    """Raises TypeError unless the connection is an async one. `name` is the function that needs
    it, `otherwise` the one that takes the others."""
    kind = kind_of(conn)
    if not kind.is_async:
        hint = f"with this one call {otherwise}"
        if kind is Kind.DJANGO:
            hint += f", from a coroutine await sync_to_async({otherwise})(...)"
        raise TypeError(
            f"jobctl.{name} needs an async connection (psycopg.AsyncConnection, SQLAlchemy's "
            f"AsyncConnection or AsyncSession, asyncpg), not {_named(conn)}; {hint}"
        )


def ask(
    conn: Connection | AsyncConnection,
    statement: str,
    parameters: Parameters,
    reply: Callable[[list[Row]], T],
) -> T | Awaitable[T]:
    """What `reply` makes of the statement's rows; of an async connection, an awaitable of it.

    Raises SchemaError when the schema or a right is missing, else the errors of the library.
    """
    if kind_of(conn).is_async:
        return _reply_later(conn, statement, parameters, reply)
    return reply(run(conn, statement, parameters))


def run(conn: object, statement: str, parameters: Parameters) -> list[Row]:
    """The rows of a statement on a sync connection; raises as `ask` does."""
    kind = kind_of(conn)
    try:
        return _run(conn, kind, statement, parameters)
    except Exception as error:  # each library has its own base class
        _explain(error)
        raise


async def run_async(conn: object, statement: str, parameters: Parameters) -> list[Row]:
    """The rows of a statement on an async connection; raises as `ask` does."""
    kind = kind_of(conn)
    try:
        return await _run_async(conn, kind, statement, parameters)
    except Exception as error:  # each library has its own base class
        _explain(error)
        raise


def commits_each(conn: Any) -> bool:
    """Whether each statement would be a transaction of its own. Of a SQLAlchemy session, pass its
    connection."""
    match kind_of(conn):
        case Kind.PSYCOPG | Kind.ASYNC_PSYCOPG:
            return bool(conn.autocommit) and conn.info.transaction_status == TransactionStatus.IDLE
        case Kind.DJANGO:
            return bool(conn.get_autocommit())
        case Kind.ASYNCPG:
            return not conn.is_in_transaction()
        case Kind.SQLALCHEMY:
            return bool(getattr(conn.connection, "autocommit", False))
        case Kind.SQLALCHEMY_SESSION:
            return commits_each(conn.connection())
        case Kind.ASYNC_SQLALCHEMY:
            return commits_each(conn.sync_connection)
        case Kind.ASYNC_SQLALCHEMY_SESSION:
            raise TypeError("ask with await session.connection()")


async def commits_each_async(conn: Any) -> bool:
    """The same of an async connection, which may have to be opened for it."""
    if kind_of(conn) is Kind.ASYNC_SQLALCHEMY_SESSION:
        conn = await conn.connection()
    return commits_each(conn)


def refusal(error: BaseException) -> tuple[str, str] | None:
    """PostgreSQL's code and sentence in an error of any of the libraries; None: it is not its."""
    for one in _chain(error):
        code = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None)
        if isinstance(code, str):
            primary = getattr(getattr(one, "diag", None), "message_primary", None)
            said = primary or getattr(one, "message", None) or str(one)
            return code, str(said)
    return None


async def _reply_later(
    conn: object, statement: str, parameters: Parameters, reply: Callable[[list[Row]], T]
) -> T:
    return reply(await run_async(conn, statement, parameters))


def _run(conn: Any, kind: Kind, statement: str, parameters: Parameters) -> list[Row]:
    match kind:
        case Kind.PSYCOPG:
            # A plain cursor: the connection's own kind may make dicts, or read statements another
            # way. Never kept prepared: a pooler in transaction mode gives the next transaction
            # another server, which has never heard of it.
            with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
                return cursor.execute(statement, parameters, prepare=False).fetchall()
        case Kind.SQLALCHEMY_SESSION:
            return _run(conn.connection(), Kind.SQLALCHEMY, statement, parameters)
        case Kind.SQLALCHEMY:
            _require_postgresql(conn.dialect.name)
            return [tuple(row) for row in conn.execute(_text(statement), dict(parameters))]
        case Kind.DJANGO:
            _require_postgresql(conn.vendor)
            with conn.cursor() as cursor:
                cursor.execute(statement, dict(parameters))
                return [tuple(row) for row in cursor.fetchall()]
        case _:
            raise TypeError(f"{_named(conn)} has to be awaited")


async def _run_async(conn: Any, kind: Kind, statement: str, parameters: Parameters) -> list[Row]:
    match kind:
        case Kind.ASYNC_PSYCOPG:
            async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
                await cursor.execute(statement, parameters, prepare=False)
                return await cursor.fetchall()
        case Kind.ASYNC_SQLALCHEMY_SESSION:
            connection = await conn.connection()
            return await _run_async(connection, Kind.ASYNC_SQLALCHEMY, statement, parameters)
        case Kind.ASYNC_SQLALCHEMY:
            _require_postgresql(conn.dialect.name)
            answer = await conn.execute(_text(statement), dict(parameters))
            return [tuple(row) for row in answer]
        case Kind.ASYNCPG:
            text, names = _numbered(statement)
            rows = await conn.fetch(text, *(parameters[name] for name in names))
            return [tuple(row.values()) for row in rows]
        case _:
            raise TypeError(f"{_named(conn)} cannot be awaited")


@lru_cache(maxsize=64)
def in_this_schema(name: str, schema: str) -> str:
    """The statement of this name with this schema in the place of {schema}."""
    # A % is read as the start of a parameter, in a quoted name too.
    quoted = sql.Identifier(schema.replace("%", "%%"))
    return sql.SQL(statement_called(name)).format(schema=quoted).as_string(None)


_PLACE = re.compile(r"%\((\w+)\)s|%%")


@lru_cache(maxsize=64)
def _numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """With $1, $2, ... as asyncpg wants it, and which parameter is which."""
    names: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    return _PLACE.sub(place, statement), tuple(names)


@lru_cache(maxsize=64)
def _colons(statement: str) -> str:
    """With :name as SQLAlchemy's text wants it, in brackets because it does not read `:name::`;
    percent signs it doubles itself."""
    escaped = re.sub(r"(?<![:\w\\]):(?=\w)", r"\\:", statement)
    return _PLACE.sub(lambda found: f"(:{found[1]})" if found[1] else "%", escaped)


def _text(statement: str) -> Any:
    from sqlalchemy import text  # it is there: one of its connections has come

    return text(_colons(statement))


def _explain(error: Exception) -> None:
    """Raises our sentence for what is missing in the database."""
    code, said = refusal(error) or ("", "")
    if code in ("3F000", "42883"):  # no such schema, no such function
        schema = schema_from_environment()
        raise SchemaError(
            f'this database has no schema "{schema}" of jobctl that fits this code ({said}): '
            "run jobctl migrate, or set JOBCTL_SCHEMA to the schema's name"
        ) from error
    if code == "42501":
        called = re.search(r"for function (\w+)", said)
        kind = rights.caller_of(called[1]) if called else rights.Kind.PRODUCER
        raise SchemaError(
            f"this database user may not do that ({said}). {rights.remedy(kind)}"
        ) from error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and what its library has wrapped in it."""
    one: Any = error
    for _ in range(5):
        if not isinstance(one, BaseException):
            return
        yield one
        one = getattr(one, "orig", None) or one.__cause__


def _require_postgresql(name: str) -> None:
    if name != "postgresql":
        raise TypeError(f"jobs live in PostgreSQL; this connection leads to {name}")


def _names(kind: type) -> Iterator[str]:
    return (f"{one.__module__}.{one.__qualname__}" for one in kind.__mro__)


def _named(conn: object) -> str:
    return f"{type(conn).__module__}.{type(conn).__qualname__}"


def _not_a_connection(conn: object) -> TypeError:
    hint = next((_HINTS[name] for name in _names(type(conn)) if name in _HINTS), "")
    if isinstance(conn, psycopg.Cursor | psycopg.AsyncCursor):
        hint = "of a cursor, pass cursor.connection"
    elif not hint and hasattr(conn, "getconn"):
        hint = "of a pool, pass the connection: with pool.connection() as conn"
    return TypeError(
        "jobctl needs your connection: of psycopg, SQLAlchemy (connection or session), Django or "
        f"asyncpg, not {_named(conn)}" + (f"; {hint}" if hint else "")
    )
