"""The store against a model of it, step by step; and the model against a store that is broken."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis.stateful import run_state_machine_as_test

from jobctl.store.migrate import migrate
from jobctl.store.statements import sql
from tests.claiming import connect
from tests.databases import SCHEMA
from tests.exploring import explore, find
from tests.store.store_machine import StoreMachine

FIND = find(500)


def test_the_store_does_what_the_model_says(database: str) -> None:
    """Whatever is done to it, in whatever order: every job stands in one place, the right one."""
    machine = type("Machine", (StoreMachine,), {"dsn": database})
    run_state_machine_as_test(machine, settings=explore(60, steps=40))


@pytest.mark.parametrize(
    ("statement", "guard", "without"),
    [
        pytest.param(
            "settle_succeeded",
            "o.job_id = a.job_id AND o.token = a.token AND o.session_id = %(session)s",
            "o.job_id = a.job_id AND %(session)s > 0",
            marks=pytest.mark.slow,  # it takes two minutes until one is let in
        ),
        (
            "settle_ended",
            "o.job_id = t.job_id AND o.session_id = t.session_id AND o.token = t.token",
            "o.job_id = t.job_id",
        ),
    ],
    ids=["succeeded", "ended"],
)
def test_without_its_fence_a_settle_is_caught(
    database: str, statement: str, guard: str, without: str
) -> None:
    """A stale token is let in, and the model notices."""
    assert guard in sql(statement)
    broken = sql(statement).replace(guard, without)

    class Broken(StoreMachine):
        dsn = database
        altered = {statement: broken}  # noqa: RUF012

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Broken, settings=FIND)


def test_a_claim_that_leaves_the_job_queued_is_caught(database: str) -> None:
    """It stands in two places: claim without its delete."""
    guard = "DELETE FROM ready AS r WHERE r.job_id"
    assert guard in sql("claim")

    class Broken(StoreMachine):
        dsn = database
        altered = {"claim": sql("claim").replace(guard, "SELECT FROM ready AS r WHERE r.job_id")}  # noqa: RUF012

    # Or PostgreSQL does, when the job is to be queued a second time.
    with pytest.raises((AssertionError, psycopg.errors.UniqueViolation)):
        run_state_machine_as_test(Broken, settings=FIND)


def test_without_the_unique_key_an_enqueue_is_caught(fresh_database: str) -> None:
    """Nothing makes one transaction wait for another: a key lets a second job in."""
    migrate(fresh_database, schema=SCHEMA)
    with connect(fresh_database, {}) as connection:
        connection.execute("ALTER TABLE job_key DROP CONSTRAINT job_key_pkey")
        connection.execute("CREATE INDEX job_key_pkey ON job_key (type, key)")
    names = {"dsn": fresh_database, "key_names": tuple("abcdef")}
    machine = type("Machine", (StoreMachine,), names)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_state_machine_as_test(machine, settings=FIND)
