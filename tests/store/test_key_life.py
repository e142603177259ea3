"""A key over the life of its job: held while it lives, dead included, and for its ttl after."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from jobctl.store.new_job import FOREVER, new_job
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.outcomes import UNREGISTERED, Cancelled, Cause, Failed, decide
from tests.claiming import Connection, claim, connect, register, run

SESSION = 88


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    """A session that claims and settles."""
    with connect(database, {}) as connection:
        register(connection, SESSION)
        yield connection


def _enqueue(conn: Connection, ttl: float | None) -> int:
    job = new_job("send", {}, key="invoice:1", key_ttl_seconds=ttl)
    ((_, job_id, _),) = conn.execute(
        "SELECT * FROM enqueue_many(%s::jsonb)", (f"[{job.text}]",)
    ).fetchall()
    return int(job_id)


def _end(conn: Connection, how: str) -> None:
    (claimed,) = claim(conn, SESSION)
    if how == "succeeded":
        run(
            conn, "settle_succeeded", jobs=[claimed.job_id], tokens=[claimed.token],
            results=[None], steps=[None], most_bytes=None, session=SESSION, progress="{}",
        )  # fmt: skip
        return
    causes: dict[str, Cause] = {
        "cancelled": Cancelled(), "dead": Failed("E", "no", permanent=True),
        "retrying": Failed("E", "not yet"),
    }  # fmt: skip
    _settle(conn, claimed, causes[how])


def _settle(conn: Connection, claimed: Claimed, cause: Cause) -> None:
    ending = decide(
        claimed.job_id, SESSION, claimed.token, claimed, UNREGISTERED, cause, 1.0
    ).to_dict()
    run(conn, "settle_ended", jobs=[claimed.job_id], endings=json.dumps([ending]))


@pytest.mark.parametrize("how", ["succeeded", "cancelled"])
@pytest.mark.parametrize("ttl", [3600.0, FOREVER, 0.0])
def test_after_its_end(conn: Connection, how: str, ttl: float) -> None:
    """The first job's id comes back for as long as its ttl says, which may be for ever or not at
    all; then a new job takes the key."""
    first = _enqueue(conn, ttl)
    _end(conn, how)
    again = _enqueue(conn, ttl)
    assert (again == first) is (ttl != 0.0)
    if ttl == FOREVER:
        assert conn.execute("SELECT until FROM job_key").fetchall() == [(None,)]
        run(conn, "sweep_keys", most=10)
        assert _enqueue(conn, ttl) == first
    if ttl == 3600.0:
        conn.execute("UPDATE job_key SET until = until - interval '1 hour'")
        assert _enqueue(conn, ttl) != first


@pytest.mark.parametrize("how", ["dead", "retrying"])
def test_while_it_is_open(conn: Connection, how: str) -> None:
    """A dead job still is the one: whoever enqueues gets it, and an operator decides."""
    first = _enqueue(conn, 0.0)
    _end(conn, how)
    assert _enqueue(conn, 0.0) == first
    assert conn.execute("SELECT count(*) FROM job").fetchall() == [(1,)]


def test_another_type_is_another_identity(conn: Connection) -> None:
    """A key belongs to its type."""
    first = _enqueue(conn, None)
    (other,) = conn.execute("SELECT enqueue('remind', '{}', key => 'invoice:1')").fetchall()
    assert other[0] != first
