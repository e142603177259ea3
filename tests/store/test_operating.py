"""Operating: what moves, moves once, and the audit log says who wanted it and why."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from jobctl.store import operating, reading
from jobctl.store.operating import Order
from jobctl.store.reading import Connection
from tests.store.standing import put, put_session, violations
from tests.waiting import until

ORDER = Order("ann@ops", "provider is back", {"queue": "mail"})


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """As the command line's."""
    with reading.connect(database, "jobctl") as made:
        yield made


def _audit(connection: Connection) -> list[tuple[object, ...]]:
    rows = connection.execute(
        "SELECT actor, action, target, count, reason FROM audit ORDER BY id"
    ).fetchall()
    return [tuple(row.values()) for row in rows]


def test_a_replayed_job_begins_anew_and_keeps_its_past(connection: Connection) -> None:
    """Budgets are new, so is the clock of max_elapsed; attempts and the last error stay."""
    job_id = put(
        connection, "dead", attempt=5, crashes=2, last_error="boom", failure_class="OSError"
    )
    connection.execute(
        "UPDATE job SET first_started_at = now(), first_failed_at = now(), last_failed_at = now()"
    )
    connection.execute(
        "INSERT INTO attempt (job_id, attempt, outcome) VALUES (%s, 5, 'failed')", (job_id,)
    )
    assert operating.replay(connection, [job_id], ORDER) == [job_id]
    shown = reading.job(connection, job_id)
    assert shown is not None
    assert (shown["state"], shown["attempt"], shown["crashes"]) == ("queued", 0, 0)
    assert (shown["started_at"], shown["first_failed_at"]) == (None, None)
    assert (shown["last_error"], len(shown["attempts"])) == ("boom", 1)
    assert shown["run_at"] > shown["created_at"]
    assert violations(connection) == []
    assert _audit(connection) == [
        ("ann@ops", "replay", {"asked": {"queue": "mail"}, "jobs": [job_id]}, 1, ORDER.reason)
    ]


def test_replaying_what_is_not_dead_changes_nothing(connection: Connection) -> None:
    """Neither the job nor the audit log."""
    placed = [put(connection, state) for state in ("queued", "running", "retrying", "succeeded")]
    assert operating.replay(connection, [*placed, 10**9], ORDER) == []
    assert _audit(connection) == []
    assert violations(connection) == []


def test_two_people_replay_the_same_jobs(connection: Connection, database: str) -> None:
    """The second waits for the first and gets only what the first did not take."""
    shared, mine = put(connection, "dead"), put(connection, "dead")
    answers: list[list[int]] = []

    def second() -> None:
        with reading.connect(database, "jobctl", application_name="second") as other:
            answers.append(operating.replay(other, [mine, shared], ORDER))

    with connection.transaction():
        assert operating.replay(connection, [shared], ORDER) == [shared]
        thread = threading.Thread(target=second)
        thread.start()
        with reading.connect(database, "jobctl") as witness:
            until(
                lambda: (
                    witness.execute(
                        "SELECT FROM pg_stat_activity"
                        " WHERE application_name = 'second' AND wait_event_type = 'Lock'"
                    ).fetchone()
                    is not None
                ),
                what="the second to wait for the first",
            )
    thread.join()
    assert answers == [[mine]]
    assert [row[3] for row in _audit(connection)] == [1, 1]
    assert violations(connection) == []


def test_waiting_jobs_are_hastened(connection: Connection) -> None:
    """Scheduled and retrying ones are queued now; their attempts stay spent."""
    scheduled = put(connection, "scheduled")
    retrying = put(connection, "retrying", attempt=3)
    dead = put(connection, "dead")
    assert sorted(operating.hasten(connection, [scheduled, retrying, dead], ORDER)) == [
        scheduled, retrying,
    ]  # fmt: skip
    shown = reading.job(connection, retrying)
    assert shown is not None
    assert (shown["state"], shown["attempt"]) == ("queued", 3)
    assert violations(connection) == []
    assert [row[1] for row in _audit(connection)] == ["retry"]


@pytest.mark.parametrize("verb", [operating.replay, operating.hasten])
def test_whatever_is_queued_has_its_transaction_before_its_number(
    connection: Connection, verb: operating.Verb
) -> None:
    """The low-water marks of dispatchers rest on it: see `ready_seq` in the schema."""
    job_id = put(connection, "dead" if verb is operating.replay else "scheduled")
    # A number drawn before there was a transaction id would be seen here: the default of the
    # column asks for both.
    connection.execute("CREATE SEQUENCE probe")
    connection.execute(
        "ALTER TABLE ready ALTER seq SET DEFAULT CASE"
        " WHEN pg_current_xact_id_if_assigned() IS NULL THEN 1 / (nextval('probe') - 1)"
        " ELSE nextval('ready_seq') END"
    )
    try:
        assert verb(connection, [job_id], ORDER) == [job_id]
    finally:
        connection.execute("ALTER TABLE ready ALTER seq SET DEFAULT nextval('ready_seq')")
        connection.execute("DROP SEQUENCE probe")


def test_a_sleeping_dispatcher_hears_of_it(connection: Connection, database: str) -> None:
    """What is queued by hand rings like what is enqueued."""
    job_id = put(connection, "dead")
    with reading.connect(database, "jobctl") as listener:
        channel = listener.execute("SELECT channel() AS name").fetchone()
        assert channel is not None
        listener.execute(f'LISTEN "{channel["name"]}"'.encode())
        connection.execute("SELECT setval('ring_at', 0)")
        operating.replay(connection, [job_id], ORDER)
        assert [note.payload for note in listener.notifies(timeout=10, stop_after=1)] == [""]


def test_hosts_are_asked_to_drain_and_to_go_on(connection: Connection, database: str) -> None:
    """Only those that are alive, one host or all; the request is announced and audited."""
    put_session(connection, 1, "a")
    put_session(connection, 2, "a")
    put_session(connection, 3, "b")
    put_session(connection, 4, "a", dead=True)
    asked = operating.drain(connection, "a", ORDER)
    assert sorted(row["id"] for row in asked) == [1, 2]
    first = connection.execute("SELECT drain_requested_at FROM session WHERE id = 1").fetchone()
    assert len(operating.drain(connection, None, ORDER)) == 3
    again = connection.execute("SELECT drain_requested_at FROM session WHERE id = 1").fetchone()
    assert first == again, "the first request stands"
    assert len(operating.drain(connection, None, ORDER, undo=True)) == 3
    assert operating.drain(connection, "nobody", ORDER) == []
    assert [(row[1], row[3]) for row in _audit(connection)] == [
        ("drain", 2), ("drain", 3), ("undrain", 3),
    ]  # fmt: skip
    left = connection.execute(
        "SELECT count(*) AS n FROM session WHERE drain_requested_at IS NOT NULL"
    ).fetchone()
    assert left == {"n": 0}


def test_how_far_a_drain_is(connection: Connection) -> None:
    """Draining, alive, and how many claims are held; who has left has no row."""
    put_session(connection, 1, "a", draining=True)
    put(connection, "running")
    (row,) = operating.drained(connection, [1, 2])
    assert row == {"id": 1, "host": "a", "draining": True, "alive": True, "claims": 1}
