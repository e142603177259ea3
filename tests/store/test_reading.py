"""Reading: the right jobs in the right order, at a price that does not grow with the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobctl.store import reading
from jobctl.store.errors import SchemaError
from jobctl.store.reading import Connection, Count, JobFilter
from jobctl.store.statements import sql
from jobctl.store.states import State
from tests.store.standing import put, put_session


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """As the command line's."""
    with reading.connect(database, "jobctl") as made:
        yield made


def _found(
    connection: Connection, most: int = 50, after: int | None = None, **what: Any
) -> list[int]:
    return [row["id"] for row in reading.find(connection, JobFilter(**what), most, after=after)]


def test_every_state_is_found_by_its_name(connection: Connection) -> None:
    """One job in each; each list has exactly that one, and says its state."""
    put_session(connection, 1)
    placed = {state: put(connection, state) for state in State}
    for state, job_id in placed.items():
        (row,) = reading.find(connection, JobFilter(state=state), 50)
        assert (row["id"], row["state"]) == (job_id, state)
    assert _found(connection) == sorted(placed.values(), reverse=True)


def test_filters_narrow_together(connection: Connection) -> None:
    """Queue and type and error, in open and finished jobs alike."""
    wanted = put(connection, "retrying", type="a", queue="x", last_error="SMTP 550: no such user")
    put(connection, "retrying", type="a", queue="y", last_error="SMTP 550")
    put(connection, "retrying", type="b", queue="x", last_error="SMTP 550")
    put(connection, "retrying", type="a", queue="x", last_error="100% wrong")
    done = put(connection, "succeeded", type="a", queue="x")
    assert _found(connection, queue="x", type="a", error="smtp 550") == [wanted]
    assert _found(connection, queue="x", type="a", error="SMTP*user") == [wanted]
    assert _found(connection, queue="x", type="a", error="550*SMTP") == []
    assert len(_found(connection, error="100%")) == 1, "% stands for itself"
    assert _found(connection, state="succeeded", queue="x", type="a") == [done]
    assert _found(connection, state="succeeded", queue="y") == []


def test_a_key_and_a_subject_find_open_and_finished_jobs(connection: Connection) -> None:
    """Whatever state the jobs of an invoice are in; a key is looked up in every type."""
    first = put(connection, "succeeded", key="invoice:1", subject="customer:7")
    connection.execute("DELETE FROM job_key")
    second = put(connection, "dead", key="invoice:1", subject="customer:7")
    other = put(connection, "queued", type="remind", key="invoice:1", subject="customer:7")
    put(connection, "queued", key="invoice:2", subject="customer:8")
    assert _found(connection, key="invoice:1") == [other, second, first]
    assert _found(connection, key="invoice:1", type="send") == [second, first]
    assert _found(connection, key="invoice:1", state="dead") == [second]
    assert _found(connection, key="invoice:1", after=second) == [first]
    assert _found(connection, subject="customer:7") == [other, second, first]
    assert _found(connection, subject="customer:7", key="invoice:1", state="succeeded") == [first]
    assert _found(connection, subject="customer:9") == []


def test_since_and_until_are_when_jobs_were_created_or_died(connection: Connection) -> None:
    """An old job that died today is among today's dead."""
    now = datetime.now(UTC)
    old = put(connection, "dead", created_at=now - timedelta(days=3))
    young = put(connection, "dead")
    put(connection, "queued", created_at=now - timedelta(days=3))
    assert _found(connection, state="dead", since=now - timedelta(hours=1)) == [young, old]
    assert _found(connection, until=now - timedelta(days=1), state="queued") != []
    assert _found(connection, since=now - timedelta(hours=1)) == [young]
    assert _found(connection, state="dead", until=now - timedelta(hours=1)) == []


def test_the_dead_are_listed_by_death(connection: Connection) -> None:
    """Who died last comes first, whatever the ids say."""
    late, early = put(connection, "dead"), put(connection, "dead")
    connection.execute(
        "UPDATE dead SET dead_since = now() + interval '1 s' WHERE job_id = %s", (late,)
    )
    assert _found(connection, state="dead") == [late, early]


def test_pages_neither_repeat_nor_skip(connection: Connection) -> None:
    """Keyset pages stay right while jobs are enqueued in front of them."""
    made = [put(connection, "queued" if n % 3 else "succeeded") for n in range(10)]
    seen: list[int] = []
    while page := _found(connection, 3, after=seen[-1] if seen else None):
        seen += page
        put(connection)
    assert seen == made[::-1]


def test_one_job_is_shown_with_its_attempts(connection: Connection) -> None:
    """The contract's view, and what did not go well, in its order."""
    job_id = put(connection, "retrying", args='{"invoice_id": 1842}', attempt=2, last_error="b")
    for number, error in ((1, "a"), (2, "b")):
        connection.execute(
            "INSERT INTO attempt (job_id, attempt, outcome, error) VALUES (%s, %s, 'failed', %s)",
            (job_id, number, error),
        )
    shown = reading.job(connection, job_id)
    assert shown is not None
    assert shown["args"] == {"invoice_id": 1842}
    assert (shown["state"], shown["attempt"], shown["last_error"]) == ("retrying", 2, "b")
    assert [(a["attempt"], a["error"]) for a in shown["attempts"]] == [(1, "a"), (2, "b")]
    assert shown["created_at"].utcoffset() == timedelta(0)
    assert reading.job(connection, job_id + 1) is None


def test_arguments_that_python_cannot_read_are_shown_as_text(connection: Connection) -> None:
    """Another language enqueued them, and the list of all jobs must not break on one."""
    deep = json.dumps({"a": 1})[:-1] + ', "b": ' + "[" * 5000 + "]" * 5000 + "}"
    job_id = put(connection, args=deep)
    shown = reading.job(connection, job_id)
    assert shown is not None
    assert "[[[[" in str(shown["args"])


def test_queues_are_counted_up_to_a_bound(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts beyond it say that they are at least so many."""
    monkeypatch.setattr(reading, "LARGEST_COUNT", 3)
    for _ in range(5):
        put(connection, queue="many")
        put(connection, "dead", queue="many")
    for _ in range(3):
        put(connection, queue="few")
    few, many = reading.queues(connection)
    assert few.counts["queued"] == Count(3)
    assert many.counts["queued"] == Count(3, capped=True)
    assert str(many.counts["dead"]) == "3+"
    assert few.age_seconds is not None
    assert few.age_seconds >= 0


def test_running_jobs_that_nobody_looks_after_are_stuck(connection: Connection) -> None:
    """Past the backstop, of a dead session, of one that is silent; not of one that is well."""
    put_session(connection, 1)
    well, late, orphan, silent = (put(connection, "running") for _ in range(4))
    connection.execute(
        "UPDATE claim SET deadline_at = now() - interval '1 s' WHERE job_id = %s", (late,)
    )
    connection.execute("UPDATE claim SET session_id = 2 WHERE job_id = %s", (orphan,))
    put_session(connection, 3, expires_at=datetime.now(UTC) - timedelta(seconds=5))
    connection.execute("UPDATE claim SET session_id = 3 WHERE job_id = %s", (silent,))
    reasons = {row["id"]: row["because"] for row in reading.stuck(connection)}
    assert reasons == {
        late: "past its deadline and grace",
        orphan: "its supervisor is gone",
        silent: "the lease of its supervisor is over",
    }
    assert well not in reasons


def test_types_that_nobody_alive_can_run(connection: Connection) -> None:
    """Jobs in a lane of their type, as long as no live session knows it."""
    put_session(connection, 1, types=["other"])
    for _ in range(2):
        job_id = put(connection, type="lost")
        connection.execute("UPDATE ready SET lane = 'type:lost@1' WHERE job_id = %s", (job_id,))
    connection.execute(
        "INSERT INTO lane (queue, priority, lane, type, schema_version)"
        " VALUES ('mail', 0, 'type:lost@1', 'lost', 1)"
    )
    (row,) = reading.unrunnable(connection)
    assert (row["type"], row["queue"], row["jobs"]) == ("lost", "mail", 2)
    put_session(connection, 2, types=["lost"], queues=["reports"])
    assert len(reading.unrunnable(connection)) == 1, "it serves another queue"
    put_session(connection, 3, types=["lost"])
    assert reading.unrunnable(connection) == []


def test_hosts_say_how_they_are(connection: Connection) -> None:
    """Working, draining, drained, silent, dead."""
    now = datetime.now(UTC)
    put_session(connection, 1, "a", leader=True)
    put_session(connection, 2, "b", drain_requested_at=now, busy=3)
    put_session(connection, 3, "c", draining=True)
    put_session(connection, 4, "d", expires_at=now - timedelta(seconds=1), leader=True)
    put_session(connection, 5, "e", dead=True, dead_because="lease expired")
    rows = {row["host"]: row for row in reading.hosts(connection)}
    states = {host: row["state"] for host, row in rows.items()}
    assert states == {"a": "working", "b": "draining", "c": "drained", "d": "silent", "e": "dead"}
    assert [host for host, row in rows.items() if row["leader"]] == ["a"]


def test_a_database_without_the_schema_says_what_to_do(fresh_database: str) -> None:
    """And not "relation does not exist"."""
    with pytest.raises(SchemaError, match="run jobctl migrate"):
        reading.connect(fresh_database, "jobctl")


@pytest.mark.parametrize("state", [None, *State])
def test_a_list_costs_the_same_whatever_stands_in_the_tables(
    connection: Connection, state: str | None
) -> None:
    """Ten jobs of any state are found by walking an index as far as needed, never a table."""
    for fill in _FILL.values():
        connection.execute(fill.encode(), (1000,))
    connection.execute("ANALYZE")
    asked = {**JobFilter(state=state).parameters(), "after": None, "most": 10}
    statement = "read_dead_ids" if state == "dead" else "read_ids"
    row = connection.execute(
        ("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql(statement)).encode(), asked
    ).fetchone()
    assert row is not None
    plan = row["QUERY PLAN"][0]["Plan"]
    buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert buffers < 150, "1000 jobs one by one would be thousands"


_FILL = {
    "ready": """
        WITH made AS (
            INSERT INTO job (type, queue, priority, args, schema_version, run_at)
            SELECT 'send', 'mail', 0, '{}', 1, now() FROM generate_series(1, %s)
            RETURNING id
        )
        INSERT INTO ready (queue, priority, job_id) SELECT 'mail', 0, id FROM made""",
    "scheduled": """
        WITH made AS (
            INSERT INTO job (type, queue, priority, args, schema_version, run_at)
            SELECT 'send', 'mail', 0, '{}', 1, now() FROM generate_series(1, %s)
            RETURNING id
        )
        INSERT INTO scheduled (run_at, job_id, retry) SELECT now(), id, id %% 2 = 0 FROM made""",
    "dead": """
        WITH made AS (
            INSERT INTO job (type, queue, priority, args, schema_version, run_at)
            SELECT 'send', 'mail', 0, '{}', 1, now() FROM generate_series(1, %s)
            RETURNING id
        )
        INSERT INTO dead (job_id, dead_since) SELECT id, now() + id * interval '1 ms' FROM made""",
    "history": """
        INSERT INTO history (
            id, type, queue, priority, args, schema_version, attempt, crashes, run_at, created_at,
            finished_at, state)
        SELECT 1000000 + n, 'send', 'mail', 0, '{}', 1, 1, 0, now(), now(), now(), 'succeeded'
        FROM generate_series(1, %s) AS n""",
}
