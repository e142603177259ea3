"""The slot's connections: lent, put back to how they were, and closed when that cannot be."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from jobctl.workerproc import connections
from jobctl.workerproc.access import Access
from jobctl.workerproc.connections import Connections
from tests.attempting import Ground
from tests.waiting import until

Conn = psycopg.Connection[Any]


def _one(conn: Conn, query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def _pid(conn: Conn) -> int:
    return conn.info.backend_pid


def test_what_is_lent(ground: Ground) -> None:
    """Named after slot and type; no statement, and no open transaction, outlives the deadline."""
    with ground.context(ground.job("resize"), seconds=30).connection() as conn:
        assert conn.autocommit
        assert _one(conn, "SHOW application_name") == "jobctl test:1 resize"
        for setting in ("statement_timeout", "idle_in_transaction_session_timeout"):
            query = f"SELECT setting::int FROM pg_settings WHERE name = '{setting}'"  # noqa: S608 - one of two words
            assert 20_000 < _one(conn, query) <= 30_000
        assert "jobctl" not in _one(conn, "SHOW search_path")


def test_a_statement_that_would_outlive_the_deadline(ground: Ground) -> None:
    """It is cut off by the server, whatever the process does."""
    context = ground.context(ground.job(), seconds=0.3)
    begun = time.monotonic()
    with pytest.raises(psycopg.errors.QueryCanceled), context.connection() as conn:
        conn.execute("SELECT pg_sleep(60)")
    assert time.monotonic() - begun < 20


def test_nothing_is_opened_before_it_is_needed(ground: Ground) -> None:
    """Nor by asking what is known anyway."""
    context = ground.context(ground.job())
    context.progress("idle")
    context.effect("x")
    context.transaction()
    assert len(ground.connections) == 0


def test_kept_for_the_next_job(ground: Ground) -> None:
    """The same server process, as good as new."""
    context = ground.context(ground.job())
    with context.connection() as conn:
        first = _pid(conn)
        conn.execute("SET work_mem = '5MB'")
        conn.execute("CREATE TEMPORARY TABLE soiled (a int)")
        conn.execute("SELECT pg_advisory_lock(5)")
        conn.execute("LISTEN something")
        conn.execute("PREPARE mine AS SELECT 1")
        conn.row_factory = psycopg.rows.dict_row
    ground.connections.tidy()
    assert ground.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    with context.connection() as conn:
        assert _pid(conn) == first
        assert _one(conn, "SHOW work_mem") == "4MB"
        for table in ("pg_prepared_statements", "pg_listening_channels()"):
            assert _one(conn, f"SELECT count(*) FROM {table}") == 0  # noqa: S608 - one of two words
        assert _one(conn, "SELECT to_regclass('soiled')") is None


def _in_transaction(conn: Conn) -> None:
    conn.execute("BEGIN")


def _failed(conn: Conn) -> None:
    conn.execute("BEGIN")
    with pytest.raises(psycopg.Error):
        conn.execute("nonsense")


def _not_autocommit(conn: Conn) -> None:
    conn.autocommit = False


def _read_only(conn: Conn) -> None:
    conn.read_only = True


def _isolated(conn: Conn) -> None:
    conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE


def _closed(conn: Conn) -> None:
    conn.close()


def _running(conn: Conn) -> None:
    conn.pgconn.send_query(b"SELECT pg_sleep(60)")


@pytest.mark.parametrize(
    "soil",
    [_in_transaction, _failed, _not_autocommit, _read_only, _isolated, _closed, _running],
)
def test_closed_when_it_cannot_be_put_back(ground: Ground, soil: Callable[[Conn], None]) -> None:
    """At once, without waiting; the next job gets another."""
    context = ground.context(ground.job())
    with context.connection() as conn:
        first = _pid(conn)
        soil(conn)
    begun = time.monotonic()
    ground.connections.tidy()
    assert time.monotonic() - begun < 5
    assert len(ground.connections) == 0
    with context.connection() as conn:
        assert _pid(conn) != first
        assert _one(conn, "SHOW transaction_read_only") == "off"


def test_what_a_job_still_holds_is_ended_with_it(ground: Ground) -> None:
    """A block that was never left: nothing of it is committed, no lock stays."""
    lending = ground.context(ground.job()).connection()
    conn = lending.__enter__()
    conn.execute("BEGIN; LOCK TABLE jobctl.audit")
    ground.connections.tidy()
    assert conn.closed
    count = "SELECT count(*) FROM pg_locks WHERE relation = 'audit'::regclass"
    until(lambda: ground.value(count) == 0, what="the server to notice")


def test_the_server_was_started_again_meanwhile(ground: Ground) -> None:
    """A kept connection that is dead is no error of the next job's."""
    context = ground.context(ground.job())
    with context.connection() as conn:
        first = _pid(conn)
    ground.see.execute("SELECT pg_terminate_backend(%s)", (first,))
    with context.connection() as conn:
        assert _pid(conn) != first
    with context.connection() as conn:
        second = _pid(conn)
    ground.see.execute("SELECT pg_terminate_backend(%s)", (second,))
    others = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'jobctl test:1%'"
    until(lambda: ground.value(others) == 0, what="its end")
    ground.connections.tidy()
    assert len(ground.connections) == 0


def test_a_server_that_does_not_answer_is_not_waited_for(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next job is there already."""
    monkeypatch.setattr(connections, "TIDY_SECONDS", 0.0)
    with ground.context(ground.job()).connection():
        pass
    ground.connections.tidy()
    assert len(ground.connections) == 0


def test_not_more_than_a_few_are_kept(ground: Ground) -> None:
    """Whatever a job has opened at once."""
    context = ground.context(ground.job())
    lendings = [context.connection() for _ in range(5)]
    for lending in lendings:
        lending.__enter__()
    assert len(ground.connections) == 5
    for lending in lendings:
        lending.__exit__()
    ground.connections.tidy()
    assert len(ground.connections) == connections.MOST_KEPT


def test_many_threads_of_one_handler(ground: Ground) -> None:
    """Each has a connection to itself."""
    context = ground.context(ground.job())

    def use(_: int) -> int:
        with context.connection() as conn:
            conn.execute("SELECT pg_sleep(0.01)")
            return _pid(conn)

    with ThreadPoolExecutor(8) as pool:
        pids = list(pool.map(use, range(40)))
    assert 1 < len(set(pids)) <= 8
    ground.connections.tidy()
    assert len(ground.connections) == connections.MOST_KEPT


def test_a_child_that_the_handler_forks(ground: Ground) -> None:
    """It has connections of its own, and leaves its parent's alone."""
    context = ground.context(ground.job())
    with context.connection() as conn:
        first = _pid(conn)
    child = os.fork()
    if child == 0:
        with context.connection() as conn:
            code = 0 if _pid(conn) != first else 1
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    with context.connection() as conn:
        assert _pid(conn) == first


def test_in_coroutines(ground: Ground) -> None:
    """Kept while the loop is the same one."""
    context = ground.context(ground.job())

    async def pid() -> int:
        async with context.connection() as conn:
            cursor = await conn.execute("SELECT pg_backend_pid()")
            row = await cursor.fetchone()
            assert row is not None
            return int(row[0])

    with asyncio.Runner() as runner:
        first = runner.run(pid())
        ground.connections.tidy()
        assert runner.run(pid()) == first
    ground.connections.tidy()
    assert asyncio.run(pid()) != first


def test_the_dsn_is_not_shown() -> None:
    """It may hold a password."""
    access = Access("postgresql://u:secret@h/d", "jobctl", "jobctl a:1")
    assert "secret" not in repr(access)
    with pytest.raises(psycopg.OperationalError) as error:
        Connections(Access("host=/nowhere password=secret", "jobctl", "x")).borrow("t", 0.0)
    assert "secret" not in str(error.value)
