"""jobctl.testing: what an application's tests see is what a slot and a supervisor would do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

import jobctl
from jobctl import testing
from jobctl.testing import draining, inline
from jobctl.workerproc.registry import Registry

CALLS: list[Any] = []


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry of this test's own."""
    registry = Registry()
    monkeypatch.setattr("jobctl.workerproc.job.registry", registry)
    monkeypatch.setattr(draining, "registry", registry)
    CALLS.clear()
    yield registry


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection[Any]]:
    """The application's."""
    with psycopg.connect(database) as connection:
        yield connection
        connection.rollback()


def declare(handler: Any = None, **options: Any) -> Any:
    return jobctl.job(**options)(handler)


# Inline -------------------------------------------------------------------------------------------


def test_a_handler_is_run_as_in_a_slot() -> None:
    """Arguments and result go through JSON; ctx is a real one."""

    def pay(ctx: jobctl.Context, amounts: Any, note: str = "none") -> Any:
        assert (ctx.type, ctx.attempt, ctx.max_attempts, ctx.job_id) == ("pay", 1, 7, 1)
        assert 25 < ctx.remaining() <= 30
        assert type(amounts) is list
        return {"sum": sum(amounts), "note": note}

    job = declare(pay, timeout="30s", retry=jobctl.Retry(max_attempts=7))
    ran = testing.run(job, amounts=(1, 2))
    assert (ran.outcome, ran.result) == ("succeeded", {"sum": 3, "note": "none"})
    with pytest.raises(TypeError, match="did you mean 'amounts'"):
        testing.run(job, amount=[1])
    with pytest.raises(jobctl.InvalidJob, match="is a datetime"):
        testing.run(job, amounts=[], note=datetime.now(UTC))


def test_what_is_no_job_is_said() -> None:
    """A name, a plain function, arguments without names."""
    for wrong in ("send_invoice", len):
        with pytest.raises(TypeError, match="@jobctl"):
            testing.run(wrong)  # type: ignore[arg-type]  # that is what is tried

    def nothing(ctx: jobctl.Context) -> None: ...

    with pytest.raises(TypeError, match="the arguments of a job have names"):
        testing.attempt(declare(nothing), [1])  # type: ignore[arg-type]  # likewise


def test_what_it_raises() -> None:
    """`run` raises it, the very object; `attempt` says what it would mean."""
    error = KeyError("x")

    def fail(ctx: jobctl.Context, how: str) -> Any:
        match how:
            case "snooze":
                raise jobctl.Snooze("10m")
            case "later":
                raise jobctl.RetryAfter("60")
            case "never":
                raise jobctl.Permanent("no", code="NO")
            case "result":
                return {1, 2}
            case _:
                raise error

    job = declare(fail, retry=jobctl.Retry(per_class={KeyError: jobctl.Backoff(max_attempts=2)}))
    with pytest.raises(KeyError) as caught:
        testing.run(job, how="key")
    assert caught.value is error
    with pytest.raises(AssertionError, match=r"fail failed: .*set"):
        testing.run(job, how="result")
    ran = testing.attempt(job, {"how": "key"})
    assert (ran.outcome, ran.error, ran.error_class, ran.permanent) == (
        "failed", error, "KeyError", False,
    )  # fmt: skip
    assert ran.retry_after_seconds is not None
    assert testing.attempt(job, {"how": "key"}, number=2).permanent
    assert testing.attempt(job, {"how": "snooze"}).snooze_seconds == 600
    assert testing.attempt(job, {"how": "later"}).retry_after_seconds == 60
    never = testing.attempt(job, {"how": "never"})
    assert (never.permanent, never.error_code, never.message) == (True, "NO", "no")


def test_coroutines_cancels_steps_and_versions() -> None:
    """Whatever a slot can do with a handler."""

    async def walk(ctx: jobctl.Context, n: int = 0) -> int:
        await asyncio.sleep(0)
        ctx.check()
        ctx.enqueue("next", {"n": n})
        return n

    job = declare(
        walk, schema_version=2, upgrade=lambda args, version: {"n": args["old"] + version}
    )
    ran = testing.run(job, n=5)
    assert (ran.result, [one.type for one in ran.steps]) == (5, ["next"])
    assert testing.attempt(job, cancelled=True).outcome == "cancelled"
    assert testing.attempt(job, {"old": 6}, schema_version=1).result == 7
    assert testing.attempt(job, {}, schema_version=3).outcome == "unrunnable"

    async def within() -> None:
        with pytest.raises(RuntimeError, match="from a plain test"):
            testing.run(job)

    asyncio.run(within())


# Enqueued -----------------------------------------------------------------------------------------


def test_what_was_enqueued_is_seen_before_the_commit(conn: psycopg.Connection[Any]) -> None:
    """By type, arguments and options; a failed assertion shows what there is."""

    def send(ctx: jobctl.Context, to: str) -> None: ...

    job = declare(send, queue="mail")
    first = job.enqueue(conn, to="ann", key="k")
    job.enqueue(conn, to="bob", subject="s")
    jobctl.enqueue(conn, "other")
    assert [one.id for one in testing.enqueued(conn)][:1] == [first]
    assert len(testing.enqueued(conn, "other")) == 1
    (found,) = testing.assert_enqueued(conn, job, to="ann", key="k", queue="mail")
    assert (found.id, found.args, found.state) == (first, {"to": "ann"}, "queued")
    testing.assert_enqueued(conn, job, times=2)
    testing.assert_enqueued(conn, job, times=0, to="eve")
    with pytest.raises(AssertionError, match=r"0 of send to='eve' are enqueued, not 1.*\n.*ann"):
        testing.assert_enqueued(conn, job, to="eve")
    with pytest.raises(AssertionError, match="none of this type"):
        testing.assert_enqueued(conn, "nobody")
    conn.rollback()
    testing.assert_enqueued(conn, job, times=0)


# Drained ------------------------------------------------------------------------------------------


def test_a_queue_is_drained_by_the_real_rules(conn: psycopg.Connection[Any], database: str) -> None:
    """Priorities, next steps, keys, results: as in production."""

    def first(ctx: jobctl.Context, n: int) -> dict[str, int]:
        CALLS.append((n, ctx.job_id, ctx.token))
        ctx.enqueue("second", {"n": n}, key=f"second:{n}")
        return {"n": n}

    def second(ctx: jobctl.Context, n: int) -> None:
        CALLS.append(("second", n))

    job = declare(first)
    declare(second, queue="other")
    low, high = job.enqueue(conn, n=1), job.enqueue(conn, n=2, priority=3)
    assert testing.drain(database) == []  # nothing is committed
    conn.commit()
    done = testing.drain(database, queue="default")
    assert [(one.job_id, one.state) for one in done] == [(high, "succeeded"), (low, "succeeded")]
    assert len(CALLS) == 2
    testing.assert_enqueued(conn, "second", times=2, state="queued")
    conn.rollback()
    done = testing.drain(database)
    assert [one.type for one in done] == ["second", "second"]
    row = conn.execute("SELECT result, attempt FROM jobctl.jobs WHERE id = %s", (low,)).fetchone()
    assert row == ({"n": 1}, 1)
    assert conn.execute("SELECT count(*) FROM jobctl.session").fetchone() == (0,)
    assert conn.execute("SELECT * FROM jobctl.placement_violations()").fetchall() == []


def test_retries_until_it_is_dead(conn: psycopg.Connection[Any], database: str) -> None:
    """The backoff is waited for, unless the test says that it has passed."""

    def fail(ctx: jobctl.Context) -> None:
        raise ConnectionError(f"attempt {ctx.attempt}")

    def snooze(ctx: jobctl.Context) -> None:
        raise jobctl.Snooze("1h")

    job = declare(fail, retry=jobctl.Retry(max_attempts=3))
    job_id = job.enqueue(conn)
    conn.commit()
    (one,) = testing.drain(database)
    assert (one.attempt, one.state, one.ran.error_class) == (1, "retrying", "ConnectionError")
    assert isinstance(one.ran.error, ConnectionError)
    assert testing.drain(database) == []
    done = testing.drain(database, skip_waits=True)
    assert [(one.attempt, one.state) for one in done] == [(2, "retrying"), (3, "dead")]
    row = conn.execute(
        "SELECT j.state, j.last_error, d.error_group IS NOT NULL FROM jobctl.jobs AS j"
        " JOIN jobctl.dead AS d ON d.job_id = j.id WHERE j.id = %s",
        (job_id,),
    ).fetchone()
    assert row == ("dead", "attempt 3", True)
    declare(snooze).enqueue(conn)
    conn.commit()
    with pytest.raises(AssertionError, match="5 attempts were made"):
        testing.drain(database, skip_waits=True, most=5)
    assert conn.execute("SELECT * FROM jobctl.placement_violations()").fetchall() == []


def test_jobs_of_code_that_is_not_here(conn: psycopg.Connection[Any], database: str) -> None:
    """They wait for it, in plain sight, and are run once it has come."""
    job_id = jobctl.enqueue(conn, "stranger")
    conn.commit()
    (one,) = testing.drain(database)
    assert (one.ran.outcome, one.state) == ("unrunnable", "queued")
    assert testing.drain(database) == []

    def stranger(ctx: jobctl.Context) -> None: ...

    declare(stranger)
    (one,) = testing.drain(database)
    assert (one.job_id, one.state) == (job_id, "succeeded")


def test_at_most_once_and_within_limits(conn: psycopg.Connection[Any], database: str) -> None:
    """What is acknowledged early never runs twice, also when its process dies."""

    def once(ctx: jobctl.Context) -> None:
        CALLS.append("x")
        raise ValueError("no")

    declare(once, ack="early").enqueue(conn, limit="bank")
    conn.commit()
    (one,) = testing.drain(database)
    assert one.state == "dead"


def test_effects_and_transactions_of_a_handler(
    conn: psycopg.Connection[Any], database: str
) -> None:
    """The context of a drained job has a way to the database."""

    def pay(ctx: jobctl.Context) -> None:
        with ctx.effect("pay:1", mode="act_first") as effect:
            if effect.todo:
                CALLS.append("paid")
        ctx.progress("almost", done=1, total=2)
        with ctx.transaction() as own:
            own.execute("SELECT 1")

    declare(pay).enqueue(conn)
    conn.commit()
    (one,) = testing.drain(database)
    assert (one.state, CALLS) == ("succeeded", ["paid"])
    row = conn.execute("SELECT state, progress ->> 'phase' FROM jobctl.jobs").fetchone()
    assert row == ("succeeded", "almost")


# Crashes ------------------------------------------------------------------------------------------


def test_a_process_that_dies_after_any_line(tmp_path: Path) -> None:
    """For real: nothing of its `finally` runs, nothing that it had in memory is left."""
    ledger = tmp_path / "ledger"

    def pay(ctx: jobctl.Context, path: str) -> None:
        CALLS.append("in the child")
        try:
            with open(path, "a") as file:  # noqa: PTH123 - a line of a handler
                file.write("x")
            done = True
        finally:
            assert done, "a crash runs no finally"

    job = declare(pay)
    left = []
    for crash in testing.crashes(job, path=str(ledger)):
        left.append(len(ledger.read_text()) if ledger.exists() else 0)
        assert crash.number == len(left) - 1
    assert left[0] == 0  # before its first line
    assert left[-1] > 0
    assert left == sorted(left)
    assert CALLS == []
    assert len(left) > 6


def test_a_coroutine_dies_where_it_waits() -> None:
    """Its lines are counted across its waits."""

    async def walk(ctx: jobctl.Context) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    lines = [crash.line for crash in testing.crashes(declare(walk))]
    assert len(set(lines)) >= 3
    assert lines == sorted(lines)


def test_a_child_that_ends_otherwise() -> None:
    """Is not taken for one that was through."""

    def leave(ctx: jobctl.Context) -> None:
        os._exit(5)

    with pytest.raises(AssertionError, match="ended with 5"):
        list(testing.crashes(declare(leave)))


def test_drained_with_a_crash(conn: psycopg.Connection[Any], database: str) -> None:
    """The attempt counts as a crash, and the next one finds what the first has left."""

    def pay(ctx: jobctl.Context, dsn: str) -> int:
        with psycopg.connect(dsn, autocommit=True) as own:
            own.execute("UPDATE paid SET times = times + 1")
        return ctx.attempt

    job = declare(pay)
    conn.execute("DROP TABLE IF EXISTS paid")
    conn.execute("CREATE TABLE paid AS SELECT 0 AS times")
    job.enqueue(conn, dsn=database)
    conn.commit()
    try:
        (one,) = testing.drain(database, crash_after=2)
        assert (one.state, one.ran.error_class) == ("retrying", "crash")
        (two,) = testing.drain(database, skip_waits=True)
        assert (two.state, two.ran.result) == ("succeeded", 2)
        assert conn.execute("SELECT times FROM paid").fetchone() == (2,)
    finally:
        conn.rollback()
        conn.execute("DROP TABLE paid")
        conn.commit()


# The plugin ---------------------------------------------------------------------------------------

APP_TEST = """
import psycopg
import jobctl

@jobctl.job
def greet(ctx: jobctl.Context, name: str) -> dict:
    return {"hello": name}

def register(dsn, name):
    with psycopg.connect(dsn) as conn:
        return greet.enqueue(conn, name=name)

def test_greeting(jobctl_queue):
    job_id = register(jobctl_queue.dsn, "Zoë")
    jobctl_queue.assert_enqueued(greet, name="Zoë", state="queued")
    (done,) = jobctl_queue.drain()
    assert done.ran.result == {"hello": "Zoë"}
    assert jobctl_queue.state(job_id) == "succeeded"
    assert jobctl_queue.enqueued() == []

def test_each_test_begins_with_nothing(jobctl_queue):
    assert jobctl_queue.state(1) is None
    assert greet.enqueue(jobctl_queue.conn, name="x") > 0
"""


@pytest.mark.parametrize("embedded", [False, True])
def test_the_plugin_in_somebodys_tests(tmp_path: Path, database: str, embedded: bool) -> None:
    """Found by itself; in a schema of its own, which is gone when the run is over."""
    (tmp_path / "test_app.py").write_text(APP_TEST)
    environment = {name: value for name, value in os.environ.items() if "JOBCTL" not in name}
    if "JOBCTL_PG_BINDIR" in os.environ:
        environment["JOBCTL_PG_BINDIR"] = os.environ["JOBCTL_PG_BINDIR"]
    if not embedded:
        environment["JOBCTL_TEST_DSN"] = database
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'jobctl_test_%'"
        ).fetchall()
    assert rows == []


def test_public_names() -> None:
    """What the README names is there."""
    assert all(hasattr(testing, name) for name in testing.__all__)
    assert inline.Ran is testing.Ran
