"""What PostgreSQL does to a queue that runs on it: each fault made in a real server, and found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from jobctl.cli import execute
from jobctl.store import reading, server_health
from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.finding import Finding, Level
from jobctl.store.migrate import migrate
from jobctl.store.reading import Connection
from tests.servers import chosen_bindir
from tests.store.standing import put_session
from tests.waiting import until


@pytest.fixture(scope="module")
def dsn(server_roots: Path) -> Iterator[str]:
    """Of a server as users have it, with prepared transactions and logical slots."""
    settings = {
        "max_prepared_transactions": "2", "wal_level": "logical",
        "idle_in_transaction_session_timeout": "10min",
    }  # fmt: skip
    server = EmbeddedPostgres(server_roots / "doctor", bindir=chosen_bindir(), settings=settings)
    server.start()
    migrate(server.dsn(), "jobctl")
    yield server.dsn()
    server.stop()


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with reading.connect(dsn, "jobctl") as made:
        yield made


def bad(connection: Connection) -> list[Finding]:
    """What is not as it should be."""
    return [one for one in server_health.examine(connection) if one.level is not Level.FINE]


@contextmanager
def changed(dsn: str, do: str, undo: str) -> Iterator[Connection]:
    """A new connection, after somebody has done this."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("SET search_path = jobctl")
        owner.execute(do.encode())
        try:
            with reading.connect(dsn, "jobctl") as made:
                yield made
        finally:
            owner.execute(undo.encode())


def test_a_server_as_users_have_it_is_fine(
    dsn: str, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is found here, and `jobctl doctor` ends with 0 once somebody works."""
    assert bad(connection) == []
    assert server_health.pooler(connection).fine
    put_session(connection, 1, leader=True)
    try:
        assert execute(["doctor", "--dsn", dsn]) == 0, capsys.readouterr().out
    finally:
        connection.execute("DELETE FROM session")


@pytest.mark.parametrize(
    ("name", "value", "level"),
    [
        ("default_transaction_isolation", "'repeatable read'", Level.WRONG),
        ("synchronous_commit", "off", Level.NOTE),
        ("idle_session_timeout", "'5min'", Level.NOTE),
        ("idle_in_transaction_session_timeout", "0", Level.NOTE),
    ],
)
def test_settings_that_do_harm(dsn: str, name: str, value: str, level: Level) -> None:
    """As a session begins with them, not as ours has set them for itself."""
    with psycopg.connect(dsn) as any_:
        database = sql.Identifier(any_.info.dbname).as_string()
    on, off = (
        f"ALTER DATABASE {database} SET {name} = {value}",
        f"ALTER DATABASE {database} RESET {name}",
    )
    with changed(dsn, on, off) as connection:
        (one,) = bad(connection)
        assert (one.about, one.level) == ("settings", level)
        assert name in one.fact
        assert one.advice


def test_an_open_transaction_and_a_forgotten_one(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By process and program, with the command that ends it."""
    with psycopg.connect(dsn, application_name="report") as other:
        other.execute("SELECT 1")
        assert bad(connection) == []
        monkeypatch.setattr(server_health, "LONG_IDLE", 0.01)
        (forgotten,) = until(lambda: bad(connection), what="it to be idle for long")
        assert f"idle in transaction {other.info.backend_pid} (" in forgotten.fact
        assert "report" in forgotten.fact
        assert f"pg_terminate_backend({other.info.backend_pid})" in forgotten.advice


def test_a_transaction_that_works_for_long(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of hours is in the way as much as a forgotten session."""
    monkeypatch.setattr(server_health, "LONG_TRANSACTION", 0.01)
    with psycopg.connect(dsn) as other:
        other.pgconn.send_query(b"SELECT pg_sleep(600)")
        (long,) = until(lambda: bad(connection), what="it to last")
        assert long.fact.startswith(f"transaction {other.info.backend_pid} (")
        other.cancel_safe()
        other.close()


def test_a_prepared_transaction(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session holds it, no restart ends it."""
    monkeypatch.setattr(server_health, "LONG_IDLE", 0.01)
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("BEGIN")
        other.execute("CREATE TABLE public.half_done ()")
        other.execute("PREPARE TRANSACTION 'it''s'")
        try:
            (one,) = until(lambda: bad(connection), what="it to be old")
            assert one.advice.endswith("ROLLBACK PREPARED 'it''s'")
        finally:
            other.execute("ROLLBACK PREPARED 'it''s'")


def test_a_replication_slot_without_a_reader(dsn: str) -> None:
    """It fills the disk."""
    with changed(
        dsn,
        "SELECT pg_create_physical_replication_slot('left', true)",
        "SELECT pg_drop_replication_slot('left')",
    ) as connection:
        (one,) = bad(connection)
        assert (one.about, one.level) == ("replication", Level.WRONG)
        assert "pg_drop_replication_slot('left')" in one.advice


def test_a_table_that_nobody_vacuums(dsn: str) -> None:
    with changed(
        dsn,
        "ALTER TABLE ready SET (autovacuum_enabled = false)",
        "ALTER TABLE ready RESET (autovacuum_enabled)",
    ) as connection:
        (one,) = bad(connection)
        assert one.advice == "ALTER TABLE ready RESET (autovacuum_enabled)"


def test_dead_rows_that_pile_up(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than live ones, and many."""
    monkeypatch.setattr(server_health, "MANY_DEAD", 100)
    with psycopg.connect(dsn) as reader, psycopg.connect(dsn, autocommit=True) as writer:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        writer.execute("SET search_path = jobctl")
        writer.execute(
            "INSERT INTO ready (queue, priority, job_id)"
            " SELECT 'q', 0, g FROM generate_series(1, 500) AS g"
        )
        writer.execute("DELETE FROM ready")
        (one,) = until(lambda: bad(connection), what="PostgreSQL to have counted", within=30)
        assert one.about == "vacuum"
        assert one.fact.startswith("ready has 500 dead rows beside 0")


def test_connections_run_out(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the last one is taken."""
    monkeypatch.setattr(server_health, "MUCH", 0.001)
    (one,) = bad(connection)
    assert one.about == "connections"
