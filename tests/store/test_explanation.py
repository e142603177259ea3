"""Why a job does not run: every cause, made in a real database, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobctl.store import explanation, queues, reading
from jobctl.store.causes import Cause
from jobctl.store.explanation import Explanation
from jobctl.store.operating import Order
from jobctl.store.reading import Connection
from tests.store.standing import put, put_session


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with reading.connect(database, "jobctl") as made:
        yield made


def ask(connection: Connection, job: int) -> Explanation:
    found = explanation.explain(connection, job)
    assert found is not None
    return found


def host(connection: Connection, session: int = 1, name: str = "alpha", **columns: object) -> None:
    """One that could run everything that the tests put."""
    put_session(connection, session, name, **{"types": ["send"], **columns})


def _ago(**time: float) -> datetime:
    return datetime.now(UTC) - timedelta(**time)


def test_unknown(connection: Connection) -> None:
    assert explanation.explain(connection, 12345) is None


def test_scheduled_and_what_would_come_then(connection: Connection) -> None:
    """Until when; and that its time alone would not help."""
    job = put(connection, "scheduled", run_at=_ago(minutes=-90))
    found = ask(connection, job)
    assert (found.cause, found.state) == (Cause.SCHEDULED, "scheduled")
    assert found.because.startswith("its time comes in 1h")
    assert found.advice == f"wait, or run it now: jobctl jobs retry {job}"
    assert found.also == "no supervisor is running"
    host(connection)
    assert ask(connection, job).also is None
    connection.execute("UPDATE job SET run_at = now() - interval '1 s'")
    assert "about to be queued" in ask(connection, job).because


def test_retrying(connection: Connection) -> None:
    """Until when, after what."""
    host(connection)
    job = put(
        connection, "retrying", run_at=_ago(minutes=-5), attempt=2, max_attempts=7,
        failure_class="Timeout", last_error="no answer\nmore",
    )  # fmt: skip
    found = ask(connection, job)
    assert found.cause is Cause.RETRYING
    assert found.because.startswith("attempt 2 of 7 failed (Timeout: no answer) and the next one")


def test_blocked(connection: Connection) -> None:
    """On what."""
    host(connection)
    found = ask(connection, put(connection, "blocked"))
    assert found.cause is Cause.BLOCKED
    assert found.because.startswith("it waits for parent since ")


def test_its_queue_is_paused(connection: Connection) -> None:
    """By whom and why; before anything that is wrong with the hosts."""
    job = put(connection)
    queues.pause(connection, ["mail"], Order("ann@ops", "provider is down"))
    found = ask(connection, job)
    assert found.cause is Cause.QUEUE_PAUSED
    assert "paused by ann@ops" in found.because and "provider is down" in found.because
    assert found.advice == "jobctl queues resume mail"


def test_no_host(connection: Connection) -> None:
    """None at all, or only such that went silent."""
    job = put(connection)
    assert ask(connection, job).cause is Cause.NO_HOST
    host(connection, expires_at=_ago(seconds=1))
    assert ask(connection, job).because == "no supervisor is running; alpha went silent"


def test_no_host_serves_its_queue(connection: Connection) -> None:
    """And what they serve instead."""
    host(connection, queues=["reports", "images"])
    found = ask(connection, put(connection))
    assert found.cause is Cause.QUEUE_UNSERVED
    assert "alpha serves reports, images" in found.because


def test_no_host_knows_its_type(connection: Connection) -> None:
    """A host that knows it and serves another queue is of no use."""
    host(connection, types=["else"])
    host(connection, 2, "beta", queues=["reports"])
    assert ask(connection, put(connection)).cause is Cause.TYPE_UNKNOWN


def test_no_code_is_new_enough(connection: Connection) -> None:
    host(connection)
    connection.execute(
        "INSERT INTO job_type (name, queue, priority, timeout_seconds, max_attempts, max_crashes,"
        " min_backoff_seconds, max_backoff_seconds, max_doublings, ack, schema_version)"
        " VALUES ('send', 'mail', 0, 60, 5, 3, 1, 1, 1, 'late', 2)"
    )
    found = ask(connection, put(connection, schema_version=3))
    assert found.cause is Cause.VERSION_UNKNOWN
    assert "of version 3" in found.because and "up to version 2" in found.because
    assert ask(connection, put(connection, schema_version=2)).cause is Cause.WAITS_ITS_TURN


def test_hosts_are_not_ready(connection: Connection) -> None:
    """Whether they had the app once, or never."""
    job = put(connection)
    host(connection, ready=0)
    assert ask(connection, job).cause is Cause.HOSTS_NOT_READY
    connection.execute("UPDATE session SET types = '{}'")
    assert ask(connection, job).cause is Cause.HOSTS_NOT_READY


def test_hosts_drain(connection: Connection) -> None:
    host(connection, draining=True)
    host(connection, 2, "beta", drain_requested_at=_ago(seconds=1))
    found = ask(connection, put(connection))
    assert found.cause is Cause.HOSTS_DRAINING
    assert found.because.endswith("alpha, beta")
    assert "undrain" in found.advice


def test_all_slots_are_busy(connection: Connection) -> None:
    """With what; and how many are before it."""
    host(connection, slots=3)
    for type_ in ("slow", "slow", "send"):
        put(connection, "running", type=type_)
    first, second = put(connection), put(connection)
    urgent = put(connection, priority=2)
    connection.execute("UPDATE ready SET priority = 2 WHERE job_id = %s", (urgent,))
    found = ask(connection, second)
    assert found.cause is Cause.SLOTS_BUSY
    assert found.because == (
        "all 3 slots that could run it are busy with slow (2), send (1); 1 job of its priority is "
        "before it and 1 job of higher priority in the queue mail"
    )
    assert ask(connection, first).cause is Cause.SLOTS_BUSY


def test_others_are_before_it(connection: Connection) -> None:
    """Slots are free: it is moving."""
    host(connection)
    put(connection)
    assert ask(connection, put(connection)).cause is Cause.WAITS_ITS_TURN


def test_it_is_the_next(connection: Connection) -> None:
    """Which is no reason to wait for long."""
    host(connection)
    job = put(connection)
    found = ask(connection, job)
    assert (found.cause, found.because) == (Cause.NEXT, "it is the next in its queue")
    connection.execute("UPDATE job SET run_at = now() - interval '10 min'")
    assert "that should not be" in ask(connection, job).advice


def test_running(connection: Connection) -> None:
    """Where, since when, until when at the latest."""
    host(connection)
    found = ask(connection, put(connection, "running"))
    assert found.cause is Cause.RUNNING
    assert found.because.startswith("it runs on alpha:? since ")
    assert "killed at the latest in " in found.advice


def test_cancel_requested(connection: Connection) -> None:
    host(connection)
    found = ask(connection, put(connection, "running", cancel_requested_at=_ago(seconds=5)))
    assert found.cause is Cause.CANCEL_REQUESTED
    assert "asked to stop" in found.because


def test_its_host_is_silent_until_its_lease_ends(connection: Connection) -> None:
    host(connection, renewed_at=_ago(seconds=50), expires_at=_ago(seconds=-10))
    found = ask(connection, put(connection, "running"))
    assert found.cause is Cause.HOST_SILENT
    assert "its lease ends in " in found.advice


def test_claimed_by_a_dead_host(connection: Connection) -> None:
    host(connection, expires_at=_ago(seconds=10), renewed_at=_ago(seconds=70))
    job = put(connection, "running")
    found = ask(connection, job)
    assert found.cause is Cause.STUCK
    assert "claimed by alpha" in found.because
    assert "the lease of its supervisor is over" in found.because
    connection.execute("DELETE FROM session")
    assert "its supervisor is gone" in ask(connection, job).because


def test_dead(connection: Connection) -> None:
    """Because of what, and how to have it again."""
    job = put(
        connection, "dead", attempt=5, max_attempts=5, failure_class="SMTPError", last_error="550"
    )
    found = ask(connection, job)
    assert found.cause is Cause.DEAD
    assert "attempt 5 of 5 was its last (SMTPError: 550)" in found.because
    assert f"jobctl dead replay {job}" in found.advice


def test_dead_of_being_interrupted(connection: Connection) -> None:
    """Acknowledged early, it never begins again; an attempt was not spent."""
    job = put(connection, "dead", failure_class="interrupted", last_error="killed")
    found = ask(connection, job)
    assert "it came to the end of no attempt (interrupted: killed)" in found.because


@pytest.mark.parametrize("state", ["succeeded", "cancelled", "discarded"])
def test_finished(connection: Connection, state: str) -> None:
    found = ask(connection, put(connection, state))
    assert (found.cause, found.state) == (Cause.FINISHED, state)
    assert state in found.because


def test_misplaced(connection: Connection) -> None:
    """What must never be is said."""
    job = put(connection)
    connection.execute("DELETE FROM ready")
    assert ask(connection, job).cause is Cause.MISPLACED


def test_no_cause_is_forgotten() -> None:
    """A cause that no test makes is a sentence that nobody has read."""
    here = Path(__file__)
    # What limits hold back is made where limits are.
    text = here.read_text() + (here.parents[1] / "cli" / "test_limits.py").read_text()
    words = {cause.name: (f"Cause.{cause.name}", f'["cause"] == "{cause}"') for cause in Cause}
    assert [name for name, both in words.items() if not any(one in text for one in both)] == []
