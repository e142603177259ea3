"""What others than its handler ask of a job: the same answers in Python, in SQL and in the view."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import jobctl
from jobctl.store import callers
from jobctl.store.job_status import JobStatus
from jobctl.store.reading import Connection
from tests.claiming import where
from tests.store.standing import put, violations

STATES = (
    "scheduled", "queued", "running", "retrying", "blocked", "succeeded", "dead", "cancelled",
    "discarded",
)  # fmt: skip


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with psycopg.connect(where(database), autocommit=True, row_factory=dict_row) as connection:
        yield connection


def ask(database: str, text: str, *parameters: Any) -> Any:
    """One value, on a connection with nobody's search_path."""
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute(text.encode(), parameters).fetchone()
        return None if row is None else row[0]


# get --------------------------------------------------------------------------------------------


def test_the_fields_are_the_columns_of_the_view(conn: Connection) -> None:
    """In their order; whoever adds a column to the view adds a field."""
    columns = conn.execute("SELECT * FROM jobs LIMIT 0").description
    assert columns is not None
    assert [field.name for field in fields(JobStatus)] == [column.name for column in columns]


@pytest.mark.parametrize("state", STATES)
def test_get_says_what_the_view_says(database: str, conn: Connection, state: str) -> None:
    """Every column, of a job in every state; and SQL's get too."""
    job = put(
        conn, state, key="k", subject="s", args='{"a": [1, 2.5, null]}', failure_class="E",
        last_error="why\nand where",
    )  # fmt: skip
    (row,) = conn.execute("SELECT * FROM jobs WHERE id = %s", (job,)).fetchall()
    with psycopg.connect(database) as plain:
        status = jobctl.get(plain, job)
    assert {field.name: getattr(status, field.name) for field in fields(status)} == row
    assert status.is_over == (state in ("succeeded", "dead", "cancelled", "discarded"))
    assert status.succeeded == (state == "succeeded")
    assert ask(database, "SELECT state FROM jobctl.get(%s)", job) == state


def test_a_job_that_does_not_exist(database: str) -> None:
    """Said in a sentence, and the caller's transaction goes on."""
    with psycopg.connect(database) as plain:
        for function in (jobctl.get, jobctl.cancel, jobctl.replay, jobctl.wait):
            with pytest.raises(jobctl.NoSuchJob, match="there is no job 404"):
                function(plain, 404)
        plain.execute("SELECT 1")
        for name in ("cancel", "replay", "wait"):
            with pytest.raises(psycopg.errors.NoDataFound), plain.transaction():
                plain.execute(f"SELECT jobctl.{name}(404)".encode())
        assert ask(database, "SELECT state FROM jobctl.get(404)") is None


@pytest.mark.parametrize("wrong", [1.5, "1", "x", None, True, float("nan")])
def test_what_is_no_id(database: str, conn: Connection, wrong: Any) -> None:
    """PostgreSQL would take 1.5 for job 2, and end the caller's transaction over the rest."""
    jobs = [put(conn, "queued") for _ in range(2)]
    with psycopg.connect(database) as plain:
        for function in (jobctl.get, jobctl.cancel, jobctl.replay, jobctl.wait):
            with pytest.raises(TypeError, match="a job's id is an int"):
                function(plain, wrong)
        assert [jobctl.get(plain, job).state for job in jobs] == ["queued"] * 2


@pytest.mark.parametrize("large", [10**30, -(10**30), 2**63])
def test_a_number_that_no_job_can_have(database: str, large: int) -> None:
    """There is no such job, and the caller's transaction goes on."""
    with psycopg.connect(database) as plain:
        for function in (jobctl.get, jobctl.cancel, jobctl.replay, jobctl.wait):
            with pytest.raises(jobctl.NoSuchJob):
                function(plain, large)
        plain.execute("SELECT 1")


@pytest.mark.parametrize("word", ["reason", "actor"])
@pytest.mark.parametrize(
    ("wrong", "error"), [("a\0b", ValueError), ("\ud800", ValueError), (5, TypeError)]
)
def test_words_that_cannot_be_kept(
    database: str, conn: Connection, word: str, wrong: Any, error: type[Exception]
) -> None:
    """Refused with the name of the word; nothing is cancelled or replayed."""
    job, dead = put(conn, "queued"), put(conn, "dead")
    with psycopg.connect(database) as plain:
        with pytest.raises(error, match=f"^{word} "):
            jobctl.cancel(plain, job, **{word: wrong})
        with pytest.raises(error, match=f"^{word} "):
            jobctl.replay(plain, dead, **{word: wrong})
        assert [jobctl.get(plain, one).state for one in (job, dead)] == ["queued", "dead"]


def test_the_async_twins(database: str, conn: Connection) -> None:
    """The same function is awaited; the twin is a coroutine; a sync connection is refused."""
    waiting, dead = put(conn, "scheduled"), put(conn, "dead")

    async def story() -> None:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as plain:
            assert (await jobctl.get(plain, waiting)).state == "scheduled"
            assert (await jobctl.aget(plain, waiting)).state == "scheduled"
            assert await jobctl.cancel(plain, waiting) == "cancelled"
            assert await jobctl.acancel(plain, waiting) == "cancelled"
            assert (await jobctl.wait(plain, waiting, timeout="1s")).state == "cancelled"
            assert (await jobctl.await_(plain, waiting)).state == "cancelled"
            assert await jobctl.replay(plain, dead)
            assert not await jobctl.areplay(plain, dead)
            with pytest.raises(jobctl.WaitTimeout):
                await jobctl.wait(plain, dead, timeout=0.05)

    asyncio.run(story())
    with psycopg.connect(database) as plain, pytest.raises(TypeError, match=r"call get"):
        asyncio.run(jobctl.aget(plain, waiting))  # type: ignore[arg-type]  # that is the mistake


# replay -----------------------------------------------------------------------------------------


def test_a_dead_job_is_replayed_once(database: str, conn: Connection) -> None:
    """With new budgets, a line in the audit log, and False for whoever comes second."""
    job = put(conn, "dead", attempt=5, crashes=2)
    with psycopg.connect(database) as plain:
        assert jobctl.replay(plain, job, reason="mended", actor="ann")
        assert conn.execute("SELECT state FROM jobs").fetchone() == {"state": "dead"}
        plain.commit()
    row = conn.execute("SELECT state, attempt, crashes FROM jobs").fetchone()
    assert row == {"state": "queued", "attempt": 0, "crashes": 0}
    noted = conn.execute("SELECT actor, action, count, reason FROM audit").fetchall()
    assert noted == [{"actor": "ann", "action": "replay", "count": 1, "reason": "mended"}]
    with psycopg.connect(database) as plain:
        assert not jobctl.replay(plain, job)
    assert violations(conn) == []


# wait -------------------------------------------------------------------------------------------


def test_wait_sees_a_job_end(database: str, conn: Connection) -> None:
    """Whatever kind of connection; nothing is left open on it."""
    with psycopg.connect(database) as plain:
        job = put(conn, "running")
        end = threading.Timer(0.2, lambda: ask(database, FINISH, job))
        end.start()
        assert jobctl.wait(plain, job, timeout="30s").state == "succeeded"
        end.join()
        assert plain.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert ask(database, "SELECT jobctl.wait(%s)", job) == "succeeded"


def test_wait_gives_up(database: str, conn: Connection) -> None:
    """With the last that is known; a TimeoutError like any other."""
    job = put(conn, "running")
    with psycopg.connect(database) as plain:
        with pytest.raises(TimeoutError, match=f"job {job} is still running") as given_up:
            jobctl.wait(plain, job, timeout=0.1)
        assert isinstance(given_up.value, jobctl.WaitTimeout)
        assert given_up.value.status.id == job
        plain.autocommit = True
        with pytest.raises(jobctl.WaitTimeout):
            jobctl.wait(plain, job, timeout=0)
    assert ask(database, "SELECT jobctl.wait(%s, '50 ms')", job) is None
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        ask(database, "SELECT jobctl.wait(%s, '1 hour')", job)


def test_wait_in_a_transaction_is_refused(database: str, conn: Connection) -> None:
    """What it has enqueued cannot run before its commit. A job that is over already is told of."""
    over = put(conn, "succeeded")
    with psycopg.connect(database) as plain:
        job = jobctl.enqueue(plain, "t")
        with pytest.raises(jobctl.CannotWait, match="Commit first"):
            jobctl.wait(plain, job, timeout="1h")
        assert jobctl.wait(plain, over).succeeded
        plain.commit()
        with pytest.raises(jobctl.WaitTimeout):
            jobctl.wait(plain, job, timeout=0.05)
    with psycopg.connect(database) as plain:
        plain.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            plain.execute("SELECT jobctl.wait(%s, '1 minute')", (job,))

    async def story() -> None:
        async with await psycopg.AsyncConnection.connect(database) as plain:
            mine = await jobctl.aenqueue(plain, "t")
            with pytest.raises(jobctl.CannotWait):
                await jobctl.wait(plain, mine)

    asyncio.run(story())


def test_the_schema_is_another(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever names a schema that is not there is told, and nothing is asked of ours."""
    monkeypatch.setenv("JOBCTL_SCHEMA", "elsewhere")
    assert '"elsewhere".get' in callers.in_schema("get_job")
    with psycopg.connect(database) as plain, pytest.raises(jobctl.SchemaError):
        jobctl.get(plain, 1)


FINISH = """
    WITH gone AS (DELETE FROM jobctl.job WHERE id = %s RETURNING *),
    freed AS (DELETE FROM jobctl.claim USING gone WHERE job_id = gone.id)
    INSERT INTO jobctl.history (id, type, queue, priority, args, schema_version, attempt, crashes,
                                run_at, created_at, finished_at, state)
    SELECT id, type, queue, priority, args, schema_version, attempt, crashes, run_at, created_at,
           clock_timestamp(), 'succeeded'
    FROM gone
    RETURNING id
"""
