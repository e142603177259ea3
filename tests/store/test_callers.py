"""Whatever library the caller's connection is of: the same words, in the caller's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import django
import django.conf
import django.db
import psycopg
import pytest
import sqlalchemy
from django.db import transaction
from psycopg.types.json import set_json_dumps, set_json_loads
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import jobctl
from jobctl.store import callers
from jobctl.store import items as item_chunks
from jobctl.store.errors import InvalidJob, SchemaError
from jobctl.store.migrate import migrate
from jobctl.store.new_job import NewJob, new_job

#: How a sync connection is made, and its transaction is rolled back and committed.
Sync = Callable[[str], Any]


def url_of(dsn: str, driver: str) -> sqlalchemy.URL:
    info = psycopg.conninfo.conninfo_to_dict(dsn)
    query = {"host": str(info["host"])}
    if "port" in info:
        query["port"] = str(info["port"])
    return sqlalchemy.URL.create(
        f"postgresql+{driver}",
        username=str(info["user"]),
        database=str(info["dbname"]),
        query=query,
    )


@contextmanager
def sqlalchemy_engine(dsn: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(url_of(dsn, "psycopg"), poolclass=sqlalchemy.NullPool)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_connection(dsn: str) -> Iterator[Any]:
    with sqlalchemy_engine(dsn) as engine, engine.connect() as conn:
        yield conn


@contextmanager
def sqlalchemy_session(dsn: str) -> Iterator[Any]:
    with sqlalchemy_engine(dsn) as engine, Session(engine) as session:
        yield session


@contextmanager
def sqlalchemy_scoped(dsn: str) -> Iterator[Any]:
    with sqlalchemy_engine(dsn) as engine:
        registry = scoped_session(sessionmaker(engine))
        yield registry
        registry.remove()


@contextmanager
def django_connection(dsn: str) -> Iterator[Any]:
    info = psycopg.conninfo.conninfo_to_dict(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": info["dbname"],
        "USER": info["user"],
        "HOST": info["host"],
        "PORT": info.get("port", ""),
    }
    if not django.conf.settings.configured:
        django.conf.settings.configure(DATABASES={"default": database}, USE_TZ=True)
        django.setup()
    handler = django.db.utils.ConnectionHandler({"default": database})
    conn = handler["default"]
    conn.set_autocommit(False)
    try:
        yield conn
    finally:
        conn.close()


@contextmanager
def plain(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn) as conn:
        yield conn
        conn.rollback()


SYNC: dict[str, Sync] = {
    "psycopg": plain,
    "sqlalchemy": sqlalchemy_connection,
    "session": sqlalchemy_session,
    "scoped_session": sqlalchemy_scoped,
    "django": django_connection,
}


@asynccontextmanager
async def async_engine(dsn: str, driver: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url_of(dsn, driver), poolclass=sqlalchemy.NullPool)
    try:
        yield engine
    finally:
        await engine.dispose()


@asynccontextmanager
async def psycopg_async(dsn: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        yield conn
        await conn.rollback()


@asynccontextmanager
async def sqlalchemy_over_asyncpg(dsn: str) -> AsyncIterator[Any]:
    async with async_engine(dsn, "asyncpg") as engine, engine.connect() as conn:
        yield conn


@asynccontextmanager
async def sqlalchemy_over_psycopg(dsn: str) -> AsyncIterator[Any]:
    async with async_engine(dsn, "psycopg") as engine, engine.connect() as conn:
        yield conn


@asynccontextmanager
async def session_over_asyncpg(dsn: str) -> AsyncIterator[Any]:
    async with async_engine(dsn, "asyncpg") as engine, AsyncSession(engine) as session:
        yield session


@asynccontextmanager
async def session_over_psycopg(dsn: str) -> AsyncIterator[Any]:
    async with async_engine(dsn, "psycopg") as engine:
        registry = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        yield registry
        await registry.remove()


class Asyncpg:
    """What the tests ask of a connection, in asyncpg's words."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn
        self.transaction: Any = None

    async def commit(self) -> None:
        await self.transaction.commit()
        await self.begin()

    async def rollback(self) -> None:
        await self.transaction.rollback()
        await self.begin()

    async def begin(self) -> None:
        self.transaction = self.conn.transaction()
        await self.transaction.start()


def asyncpg_words(dsn: str) -> dict[str, Any]:
    info = psycopg.conninfo.conninfo_to_dict(dsn)
    words = {"user": info["user"], "database": info["dbname"], "host": info["host"]}
    if "port" in info:
        words["port"] = info["port"]
    return words


@asynccontextmanager
async def asyncpg_connection(dsn: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(**asyncpg_words(dsn))
    try:
        yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def asyncpg_from_a_pool(dsn: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(**asyncpg_words(dsn), min_size=1) as pool, pool.acquire() as one:
        yield one


ASYNC: dict[str, Callable[[str], Any]] = {
    "psycopg": psycopg_async,
    "sqlalchemy+asyncpg": sqlalchemy_over_asyncpg,
    "sqlalchemy+psycopg": sqlalchemy_over_psycopg,
    "session+asyncpg": session_over_asyncpg,
    "scoped_session+psycopg": session_over_psycopg,
    "asyncpg": asyncpg_connection,
    "asyncpg pool": asyncpg_from_a_pool,
}


async def words_of(conn: Any) -> Any:
    """Something with commit() and rollback()."""
    if not hasattr(conn, "is_in_transaction"):
        return conn
    words = Asyncpg(conn)
    await words.begin()
    return words


@pytest.fixture
def witness(database: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else, who sees what is committed."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def seen(witness: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    query = "SELECT id, type, args, key FROM jobctl.jobs ORDER BY id"
    return witness.execute(query).fetchall()


ODD = {"text": "Hà Nội ☃ :name %s %(x)s $1 \\", "list": [1, 2.5, None, {"a": True}]}


@pytest.mark.parametrize("kind", SYNC)
def test_a_transaction_of_any_library(
    kind: str, database: str, witness: psycopg.Connection[Any]
) -> None:
    """Nothing before its commit, nothing after its rollback, everything as it was given."""
    with SYNC[kind](database) as conn:
        jobctl.enqueue(conn, "gone", key="k")
        conn.rollback()
        first = jobctl.enqueue(conn, "send", ODD, key="k: %s :x", delay="0s")
        again = jobctl.enqueue(conn, "send", {}, key="k: %s :x")
        many = jobctl.enqueue_many(conn, [{"type": "a"}, {"type": "b", "args": ODD}])
        assert seen(witness) == []
        conn.commit()
    assert again == first
    assert seen(witness) == [
        (first, "send", ODD, "k: %s :x"), (many[0], "a", {}, None), (many[1], "b", ODD, None)
    ]  # fmt: skip
    assert all(type(one) is int for one in [first, *many])


@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_transaction_of_any_library(
    kind: str, database: str, witness: psycopg.Connection[Any]
) -> None:
    """The same, awaited."""

    async def story() -> list[int]:
        async with ASYNC[kind](database) as conn:
            words = await words_of(conn)
            await jobctl.enqueue(conn, "gone", key="k")
            await words.rollback()
            ids = [
                await jobctl.enqueue(conn, "send", ODD, key="k"),
                await jobctl.aenqueue(conn, "send", {"n": 2}, key="k"),
                *(await jobctl.enqueue_many(conn, [{"type": "a", "args": ODD}])),
                *(await jobctl.aenqueue_many(conn, [new_job("b")])),
            ]
            assert seen(witness) == []
            await words.commit()
            return ids

    ids = asyncio.run(story())
    assert ids[0] == ids[1]
    assert seen(witness) == [
        (ids[0], "send", ODD, "k"), (ids[2], "a", ODD, None), (ids[3], "b", {}, None)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", SYNC)
def test_what_postgresql_refuses(kind: str, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our errors, whatever the library wraps PostgreSQL's in; the cause is kept."""
    with SYNC[kind](database) as conn:
        with pytest.raises(InvalidJob, match="type must be a name of 1 to 200") as refused:
            jobctl.enqueue_many(conn, [NewJob("x", '{"type": ""}')])
        assert refused.value.__cause__ is not None
        conn.rollback()
        monkeypatch.setenv("JOBCTL_SCHEMA", "elsewhere")
        with pytest.raises(SchemaError, match=r'no schema "elsewhere".*run jobctl migrate'):
            jobctl.enqueue(conn, "send")
        conn.rollback()
        monkeypatch.delenv("JOBCTL_SCHEMA")
        # Anything else is the library's own error.
        with pytest.raises(Exception, match="division by zero") as other:
            callers.run(conn, "SELECT 1 / %(x)s::integer", {"x": 0})
        assert not isinstance(other.value, jobctl.JobctlError)
        conn.rollback()
        assert jobctl.enqueue(conn, "send") > 0


@pytest.mark.parametrize("kind", ASYNC)
def test_what_postgresql_refuses_of_async_ones(
    kind: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, awaited."""

    async def story() -> None:
        async with ASYNC[kind](database) as conn:
            words = await words_of(conn)
            with pytest.raises(InvalidJob, match="type must be a name of 1 to 200"):
                await jobctl.enqueue_many(conn, [NewJob("x", '{"type": ""}')])
            await words.rollback()
            monkeypatch.setenv("JOBCTL_SCHEMA", "elsewhere")
            with pytest.raises(SchemaError, match='no schema "elsewhere"'):
                await jobctl.enqueue(conn, "send")
            await words.rollback()
            monkeypatch.delenv("JOBCTL_SCHEMA")
            with pytest.raises(Exception, match="division by zero") as other:
                await callers.run_async(conn, "SELECT 1 / %(x)s::integer", {"x": 0})
            assert not isinstance(other.value, jobctl.JobctlError)
            await words.rollback()

    asyncio.run(story())


def test_a_user_without_rights(database: str) -> None:
    """Which rights are missing, whatever library asks."""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS stranger")
        owner.execute("CREATE ROLE stranger")
        try:
            for kind, connect in SYNC.items():
                with connect(database) as conn:
                    callers.run(conn, "SELECT set_config('role', %(r)s::text, true)",
                                {"r": "stranger"})  # fmt: skip
                    with pytest.raises(SchemaError, match="jobctl grants --producer ROLE --apply"):
                        jobctl.enqueue(conn, "send")
                    conn.rollback()
                assert kind
        finally:
            owner.execute("DROP ROLE stranger")


@pytest.mark.parametrize(
    "schema", ["Two Words", "a:b :c", "100%s {x}", "Hà Nội", "$1", "back\\slash"]
)
def test_a_schema_by_any_name_in_any_library(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    """No library takes a part of the name for a parameter."""
    migrate(fresh_database, schema)
    monkeypatch.setenv("JOBCTL_SCHEMA", schema)
    for connect in SYNC.values():
        with connect(fresh_database) as conn:
            assert jobctl.enqueue(conn, "send") > 0

    async def story() -> None:
        for connect in ASYNC.values():
            async with connect(fresh_database) as conn:
                assert await jobctl.enqueue(conn, "send") > 0

    asyncio.run(story())


def test_habits_of_applications(database: str) -> None:
    """json of their own, rows of their own, codecs of their own: none of it is met."""
    with psycopg.connect(database) as conn:
        set_json_dumps(lambda value: str(1 / 0), conn)
        set_json_loads(lambda text: 1 / 0, conn)
        assert jobctl.enqueue(conn, "send", ODD) > 0
        conn.rollback()

    async def story() -> None:
        async with asyncpg_connection(database) as conn:
            for kind in ("json", "jsonb"):
                await conn.set_type_codec(
                    kind, schema="pg_catalog", encoder=lambda _: 1 / 0, decoder=lambda _: 1 / 0
                )
            assert await jobctl.enqueue(conn, "send", ODD) > 0

    asyncio.run(story())


def test_a_session_that_others_have_derived(database: str) -> None:
    """Frameworks ship sessions of their own; a transaction that has begun is joined."""

    class Shop(Session):
        """As Flask-SQLAlchemy's and SQLModel's."""

    with sqlalchemy_engine(database) as engine, Shop(engine) as session, session.begin():
        before = session.execute(sqlalchemy.text("SELECT pg_current_xact_id()::text")).scalar()
        job_id = jobctl.enqueue(session, "send")
        (row,) = callers.run(session, "SELECT pg_current_xact_id()::text", {})
        assert row == (before,)
        with session.begin_nested() as savepoint:
            jobctl.enqueue(session, "gone")
            savepoint.rollback()
        assert callers.run(session, "SELECT id FROM jobctl.jobs", {}) == [(job_id,)]


def test_types_know_what_has_to_be_awaited(database: str) -> None:
    """mypy reads this: an id of a session, an awaitable of an async one."""

    def plainly(session: Session) -> int:
        return jobctl.enqueue(session, "send")

    async def later(session: AsyncSession) -> list[int]:
        return [await jobctl.enqueue(session, "send"), *(await jobctl.enqueue_many(session, []))]

    async def story() -> None:
        async with async_engine(database, "asyncpg") as engine, AsyncSession(engine) as session:
            assert len(await later(session)) == 1

    with sqlalchemy_engine(database) as engine, Session(engine) as session:
        assert plainly(session) > 0
    asyncio.run(story())


def test_django_atomic(database: str, witness: psycopg.Connection[Any]) -> None:
    """As everybody uses it: the default connection, inside atomic()."""
    with django_connection(database):  # settings
        pass
    django.db.connections.databases["default"].update(
        NAME=psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    )
    try:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            jobctl.enqueue(django.db.connection, "gone")
            raise ZeroDivisionError
        with transaction.atomic():
            job_id = jobctl.enqueue(django.db.connection, "send")
            assert seen(witness) == []
        assert [row[0] for row in seen(witness)] == [job_id]
        # Outside of atomic() Django commits each statement.
        jobctl.enqueue(django.db.connections["default"], "send")
        assert len(seen(witness)) == 2
    finally:
        django.db.connections.close_all()


def test_many_jobs_on_a_connection_that_commits_each(
    database: str, witness: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit into one statement would be half lost: refused, and nothing is sent."""
    monkeypatch.setattr(item_chunks, "CHUNK_BYTES", 200)
    items = [new_job("a", {"n": n}) for n in range(20)]
    with sqlalchemy_engine(database) as engine:
        with (
            engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn,
            pytest.raises(InvalidJob, match="begin a transaction"),
        ):
            jobctl.enqueue_many(conn, items)
        with Session(engine) as session:
            assert len(jobctl.enqueue_many(session, items)) == 20
    with django_connection(database) as conn:
        conn.set_autocommit(True)
        with pytest.raises(InvalidJob, match="begin a transaction"):
            jobctl.enqueue_many(conn, items)

    async def story() -> None:
        async with asyncpg_connection(database) as conn:
            with pytest.raises(InvalidJob, match="begin a transaction"):
                await jobctl.enqueue_many(conn, items)
            assert seen(witness) == []
            async with conn.transaction():
                assert len(await jobctl.enqueue_many(conn, items)) == 20
        async with session_over_asyncpg(database) as session:
            assert len(await jobctl.enqueue_many(session, items)) == 20
            await session.rollback()

    asyncio.run(story())
    assert len(seen(witness)) == 20


def test_what_people_pass_by_mistake(database: str) -> None:
    """Each is told what to pass instead."""
    with sqlalchemy_engine(database) as engine:
        for stranger, hint in (
            (engine, "engine.begin"),
            (sessionmaker(engine), "the session that it makes"),
            (django.db.connections, r"connections\['default'\]"),
            (object(), "builtins.object"),
        ):
            with pytest.raises(TypeError, match=hint):
                jobctl.enqueue(stranger, "send")  # type: ignore[arg-type]
    other = sqlalchemy.create_engine("sqlite://")
    with other.connect() as conn, pytest.raises(TypeError, match="leads to sqlite"):
        jobctl.enqueue(conn, "send")

    async def story() -> None:
        async with asyncpg.create_pool(**asyncpg_words(database), min_size=1) as pool:
            with pytest.raises(TypeError, match=r"pool\.acquire"):
                await jobctl.enqueue(pool, "send")
        async with async_engine(database, "asyncpg") as engine:
            with pytest.raises(TypeError, match=r"async with engine\.begin"):
                await jobctl.aenqueue(engine, "send")  # type: ignore[arg-type]

    asyncio.run(story())
    with django_connection(database) as conn, pytest.raises(TypeError, match="sync_to_async"):
        asyncio.run(jobctl.aenqueue(conn, "send"))


def test_either_way(database: str) -> None:
    """`ask` is for functions that serve both: a value of a sync connection, else an awaitable."""

    def answer(conn: Any) -> int | Awaitable[int]:
        statement = "SELECT %(n)s::integer + %(n)s::integer, 'a:b 100%%'"
        return callers.ask(conn, statement, {"n": 21}, lambda rows: int(rows[0][0]))

    for connect in SYNC.values():
        with connect(database) as conn:
            assert answer(conn) == 42

    async def story() -> None:
        for connect in ASYNC.values():
            async with connect(database) as conn:
                doubled = answer(conn)
                assert not isinstance(doubled, int)
                assert await doubled == 42

    asyncio.run(story())
