"""Items that come after others of the same call, and what is refused before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest

import jobctl
from jobctl.store import items as chunking
from jobctl.store.errors import InvalidJob
from jobctl.store.new_job import NewJob, new_job
from tests.claiming import Connection, connect


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with connect(database, {}) as connection:
        yield connection


def edges(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT parent, child, on_dead FROM edges ORDER BY 2, 1").fetchall()


def test_ids_and_items_are_parents(conn: Connection) -> None:
    """Both at once; a parent that is named twice is one."""
    first = jobctl.enqueue(conn, "a")
    b = new_job("b", after=[first, first])
    c = new_job("c", after=[b, first, b], on_dead="cancel")
    assert jobctl.enqueue_many(conn, [b, c]) == [first + 1, first + 2]
    assert edges(conn) == [
        (first, first + 1, "hold"), (first, first + 2, "cancel"), (first + 1, first + 2, "cancel"),
    ]  # fmt: skip
    assert jobctl.enqueue(conn, "d", after=[first], on_dead="hold") == first + 3


def test_sql_takes_the_same(conn: Connection) -> None:
    """From any language."""
    first = jobctl.enqueue(conn, "a")
    conn.execute("SELECT enqueue('b', after => ARRAY[%s], on_dead => 'cancel')", (first,))
    assert edges(conn) == [(first, first + 1, "cancel")]


def test_a_fan_out_and_a_fan_in(conn: Connection) -> None:
    """Two items with the same words are two jobs."""
    start = new_job("start")
    parts = [new_job("part", after=[start]) for _ in range(3)]
    one, *three, last = jobctl.enqueue_many(conn, [start, *parts, new_job("end", after=parts)])
    assert edges(conn) == [
        *((one, part, "hold") for part in three),
        *((part, last, "hold") for part in three),
    ]


def test_an_item_comes_after_one_of_an_earlier_chunk(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is too large for one statement is still one call."""
    monkeypatch.setattr(chunking, "CHUNK_BYTES", 200)
    chain: list[NewJob] = []
    for n in range(20):
        chain.append(new_job("a", {"n": n}, after=chain[-1:]))
    chain.append(new_job("join", after=chain[:5]))
    assert len(chunking.chunks_of(chain)) > 3
    ids = jobctl.enqueue_many(conn, chain)
    assert edges(conn) == [
        *((a, b, "hold") for a, b in pairwise(ids[:-1])),
        *((a, ids[-1], "hold") for a in ids[:5]),
    ]


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (7, r"must be a list of ids and items, not 7: \[id\]"),
        ("7", "must be a list"),
        ([True], "not of True"),
        ([0], "not of 0"),
        ([2**63], "not of"),
        (["7"], "not of '7'"),
        ([None], "not of None"),
        (range(1, 1002), "more than 1000: join them in steps"),
    ],
)
def test_what_is_no_list_of_parents_is_refused(after: Any, why: str) -> None:
    """With a sentence, where it is written."""
    with pytest.raises(InvalidJob, match=f"'t' was not enqueued: its after.*{why}|it comes.*{why}"):
        new_job("t", after=after)


def test_what_should_become_of_it_is_hold_or_cancel() -> None:
    """Nothing else."""
    with pytest.raises(InvalidJob, match="'hold' or 'cancel', not 'drop'"):
        new_job("t", after=[1], on_dead="drop")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("order", ["missing", "later", "itself"])
def test_a_parent_has_to_stand_before_it(conn: Connection, order: str) -> None:
    """Found before anything is sent: the caller's transaction stays whole."""
    a = new_job("a")
    b = new_job("b", after=[a])
    calls = {"missing": [b], "later": [b, a], "itself": [a.coming_after([b]), b]}
    with conn.transaction():
        with pytest.raises(InvalidJob, match=r"comes after an item of .*enqueue them together"):
            jobctl.enqueue_many(conn, calls[order])
        assert conn.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
    assert conn.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
