"""What is committed exists, what is rolled back never did, and what is wrong is never sent."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from jobctl.store import items as item_chunks
from jobctl.store.enqueue import aenqueue, aenqueue_many, enqueue, enqueue_many
from jobctl.store.errors import InvalidJob, JobctlError, SchemaError
from jobctl.store.migrate import migrate
from jobctl.store.new_job import NewJob, new_job
from tests.waiting import until

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    """The application's connection: a plain one, not in autocommit."""
    with psycopg.connect(database) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def other(database: str) -> Iterator[Connection]:
    """Somebody else's, in autocommit: it sees what is committed."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def jobs(connection: Connection, columns: str = "id, type, state") -> list[tuple[Any, ...]]:
    query = f"SELECT {columns} FROM jobctl.jobs ORDER BY id"  # noqa: S608 - the test's own words
    return connection.execute(query.encode()).fetchall()


def expire_keys(connection: Connection) -> None:
    connection.execute("UPDATE jobctl.job_key SET until = now() - interval '1 second'")


# A transaction's word.


def test_a_job_exists_from_the_commit_on(conn: Connection, other: Connection) -> None:
    """Nobody sees it before."""
    job_id = enqueue(conn, "send", {"invoice_id": 1842})
    assert jobs(other) == []
    conn.commit()
    assert jobs(other) == [(job_id, "send", "queued")]
    assert jobs(other, "args") == [({"invoice_id": 1842},)]


def test_rolled_back_it_never_was(conn: Connection, other: Connection) -> None:
    """Neither the job nor its key nor its queue."""
    enqueue(conn, "send", key="k", queue="mail")
    enqueue_many(conn, [{"type": "send", "delay": "1h"}])
    conn.rollback()
    for table in ("job", "ready", "scheduled", "job_key", "queue_seen"):
        query = sql.SQL("SELECT count(*) FROM jobctl.{}").format(sql.Identifier(table))
        assert other.execute(query).fetchone() == (0,)
    again = enqueue(other, "send", key="k")
    assert jobs(other) == [(again, "send", "queued")]


def test_a_savepoint_takes_back_its_part(conn: Connection, other: Connection) -> None:
    """As with any statement."""
    kept = enqueue(conn, "send")
    with conn.transaction(force_rollback=True):
        enqueue(conn, "send")
    conn.commit()
    assert [row[0] for row in jobs(other)] == [kept]


def test_autocommit_is_a_commit(other: Connection) -> None:
    """One statement, one transaction."""
    job_id = enqueue(other, "send")
    assert jobs(other) == [(job_id, "send", "queued")]
    assert other.info.transaction_status is TransactionStatus.IDLE


def test_async_connections(database: str, other: Connection) -> None:
    """The same words, awaited; rolled back, it never was."""

    async def story() -> list[int]:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await enqueue(conn, "gone")
            await conn.rollback()
            ids = [
                await enqueue(conn, "send", {"n": 1}, key="k"),
                await aenqueue(conn, "send", {"n": 2}),
                *(await enqueue_many(conn, [{"type": "a"}, {"type": "b"}])),
                *(await aenqueue_many(conn, [new_job("c")])),
            ]
            assert jobs(other) == []
        return ids

    ids = asyncio.run(story())
    assert [row[:2] for row in jobs(other)] == list(
        zip(ids, ["send", "send", "a", "b", "c"], strict=True)
    )


def test_an_async_mistake_is_made_before_it_is_awaited(database: str) -> None:
    """The sentence points at the line that enqueues."""

    async def story() -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            with pytest.raises(InvalidJob):
                enqueue(conn, "send", priority=9)
            assert conn.info.transaction_status is TransactionStatus.IDLE

    asyncio.run(story())


# What a job is.


def test_what_is_given_is_what_is_kept(conn: Connection) -> None:
    """Every option lands in its column."""
    job_id = enqueue(
        conn,
        "send",
        {"a": [1, 2.5, None, "ệ"]},
        key="invoice:1",
        subject="invoice 1",
        queue="mail",
        priority=3,
        timeout="90s",
        max_attempts=7,
        schema_version=4,
    )
    columns = "args, key, subject, queue, priority, schema_version, max_attempts, state"
    assert jobs(conn, columns) == [
        ({"a": [1, 2.5, None, "ệ"]}, "invoice:1", "invoice 1", "mail", 3, 4, 7, "queued")
    ]
    timeout = "SELECT timeout_seconds FROM jobctl.job WHERE id = %s"
    assert conn.execute(timeout, (job_id,)).fetchone() == (90.0,)


def test_what_is_not_given_is_the_types(conn: Connection) -> None:
    """As its newest code registered it, and sensible if nobody has."""
    enqueue(conn, "unknown")
    conn.execute(
        "INSERT INTO jobctl.job_type VALUES "
        "('known', 'mail', 2, 30, NULL, 9, 3, 10, 3600, 16, NULL, 'late', 5, NULL, NULL, NULL)"
    )
    enqueue(conn, "known", key="k")
    assert jobs(conn, "queue, priority, schema_version, max_attempts") == [
        ("default", 0, 1, 5),
        ("mail", 2, 5, 9),
    ]
    assert conn.execute("SELECT ttl_seconds FROM jobctl.job_key").fetchall() == [(None,)]


def test_its_time(conn: Connection) -> None:
    """A delay counts by the database's clock; a moment that is past is now."""
    enqueue(conn, "a", delay="1h")
    enqueue(conn, "b", run_at=datetime(2150, 1, 1, 8, tzinfo=timezone(timedelta(hours=7))))
    enqueue(conn, "c", run_at=datetime.now(UTC) - timedelta(days=1))
    enqueue(conn, "d", delay=0)
    enqueue(conn, "e", delay=timedelta(days=36_525))
    query = "extract(epoch FROM run_at - created_at)::float, run_at, state"
    rows = jobs(conn, query)
    assert rows[0][0] == 3_600
    assert rows[1][1] == datetime(2150, 1, 1, 1, tzinfo=UTC)
    assert [row[2] for row in rows] == ["scheduled", "scheduled", "queued", "queued", "scheduled"]


@pytest.mark.parametrize(
    "text", ["'; DROP TABLE job; --", "$$", "%s %(x)s {y}", "Hà Nội ☃", '"', "\\"]
)
def test_any_text_is_only_text(conn: Connection, text: str) -> None:
    """Names are values, whatever stands in them."""
    enqueue(conn, text, {text: text}, key=text, subject=text, queue=text)
    assert jobs(conn, "type, args, key, subject, queue") == [(text, {text: text}, text, text, text)]


def test_the_largest_names_fit_their_indexes(conn: Connection) -> None:
    """Characters of four bytes, and nothing that compresses."""
    letters = [chr(0x1F300 + n) for n in range(500)]
    random.Random(1).shuffle(letters)
    word = "".join(letters)
    job_id = enqueue(conn, word[:200], key=word[:375], subject=word, queue=word[:100])
    assert enqueue(conn, word[:200], key=word[:375]) == job_id


# Keys.


def test_a_key_is_one_job(conn: Connection, other: Connection) -> None:
    """The second enqueue gets the first one's id, and changes nothing about it."""
    first = enqueue(conn, "send", {"n": 1}, key="k")
    conn.commit()
    assert enqueue(conn, "send", {"n": 2}, key="k", priority=3, queue="elsewhere") == first
    conn.commit()
    assert jobs(other, "id, args, priority, queue") == [(first, {"n": 1}, 0, "default")]


def test_a_key_belongs_to_its_type(conn: Connection) -> None:
    """The same key of another type is another job."""
    assert enqueue(conn, "send", key="k") != enqueue(conn, "print", key="k")


def test_a_key_that_comes_twice_in_one_call(conn: Connection) -> None:
    """Is one job, the first; others of the call stay where they are."""
    items: list[Any] = [
        {"type": "a", "key": "k", "args": {"n": 1}},
        {"type": "a"},
        {"type": "a", "key": "k", "args": {"n": 2}},
        {"type": "b", "key": "k"},
    ]
    ids = enqueue_many(conn, items)
    assert ids[0] == ids[2]
    assert len(set(ids)) == 3
    assert len(jobs(conn)) == 3
    assert jobs(conn, "args")[0] == ({"n": 1},)


def test_a_key_is_held_after_the_job_and_then_no_more(conn: Connection, other: Connection) -> None:
    """While `until` lies ahead the old id comes back; then a new job takes the key over."""
    first = enqueue(other, "send", key="k")
    other.execute("UPDATE jobctl.job_key SET until = now() + interval '1 hour'")
    assert enqueue(other, "send", key="k") == first
    expire_keys(other)
    second = enqueue(conn, "send", key="k")
    assert second != first
    conn.rollback()
    third = enqueue(conn, "send", key="k")
    assert third not in (first, second)
    conn.commit()
    query = "SELECT job_id, until FROM jobctl.job_key"
    assert other.execute(query).fetchall() == [(third, None)]


def test_expired_and_held_and_new_keys_in_one_call(conn: Connection, other: Connection) -> None:
    """Each gets what it would get alone."""
    enqueue_many(other, [{"type": "a", "key": "old"}, {"type": "a", "key": "older"}])
    expire_keys(other)
    held = enqueue(other, "a", key="held")
    keys = ["new", "held", "old", None, "older", "old", "newer"]
    ids = enqueue_many(conn, [new_job("a", key=key) for key in keys])
    assert ids[1] == held
    assert ids[2] == ids[5]
    assert len(set(ids)) == 6
    assert conn.execute("SELECT * FROM jobctl.placement_violations()").fetchall() == []


class Enqueuer(threading.Thread):
    """Enqueues one key on its own connection, in the background, and stays in its transaction."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.connection = psycopg.connect(dsn)
        self.job_id: int | None = None
        self.start()

    def run(self) -> None:
        self.job_id = enqueue(self.connection, "send", key="k")

    def is_blocked_by_somebody(self, observer: Connection) -> bool:
        query = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
        row = observer.execute(query, (self.connection.info.backend_pid,)).fetchone()
        return row == (True,)


@pytest.fixture
def second(database: str) -> Iterator[list[Enqueuer]]:
    begun: list[Enqueuer] = []
    yield begun
    for one in begun:
        one.join(10)
        one.connection.close()


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("first_commits", [False, True])
def test_who_comes_second_waits_for_the_first_ones_word(
    conn: Connection,
    other: Connection,
    second: list[Enqueuer],
    database: str,
    expired: bool,
    first_commits: bool,
) -> None:
    """Two at once, for a key that is new or over: one job if the first commits; if it rolls back,
    the second's."""
    if expired:
        enqueue(other, "send", key="k")
        expire_keys(other)
    first_id = enqueue(conn, "send", key="k")
    rival = Enqueuer(database)
    second.append(rival)
    until(lambda: rival.is_blocked_by_somebody(other), what="the second enqueuer waiting")
    conn.commit() if first_commits else conn.rollback()
    rival.join(10)
    if first_commits:
        assert rival.job_id == first_id
        # And it holds no lock in its open transaction: the end of that job must not wait for it.
        other.execute("SELECT FROM jobctl.job_key FOR UPDATE NOWAIT")
    else:
        assert rival.job_id not in (None, first_id)
    rival.connection.commit()
    query = "SELECT job_id, until FROM jobctl.job_key"
    assert other.execute(query).fetchall() == [(rival.job_id, None)]


def test_many_enqueuers_of_the_same_keys_that_roll_back(database: str, other: Connection) -> None:
    """Whoever commits names the same job; every job that exists is somebody's; no deadlock."""
    enqueue_many(other, [{"type": "old", "key": str(n)} for n in range(3)])
    expire_keys(other)
    before = len(jobs(other))
    told: dict[tuple[str, str], set[int]] = {}
    lock = threading.Lock()
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        try:
            with psycopg.connect(database) as connection:
                for _ in range(25):
                    kind = chance.choice(["old", "new"])
                    keys = sorted(chance.sample(["0", "1", "2"], chance.randint(1, 3)))
                    ids = enqueue_many(connection, [{"type": kind, "key": key} for key in keys])
                    if chance.random() < 0.5:
                        connection.rollback()
                        continue
                    connection.commit()
                    with lock:
                        for key, job_id in zip(keys, ids, strict=True):
                            told.setdefault((kind, key), set()).add(job_id)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert all(len(ids) == 1 for ids in told.values())
    assert len(jobs(other)) - before == len(told)
    assert other.execute("SELECT * FROM jobctl.placement_violations()").fetchall() == []


def test_an_old_snapshot_is_told_to_try_again(conn: Connection, other: Connection) -> None:
    """REPEATABLE READ cannot see the job that took the key meanwhile: a serialization failure."""
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    conn.execute("SELECT 1")
    enqueue(other, "send", key="k")
    with pytest.raises(psycopg.errors.SerializationFailure):
        enqueue(conn, "send", key="k")


def test_the_first_job_of_a_queue_makes_nobody_wait(conn: Connection, other: Connection) -> None:
    """A queue is born in a transaction that may stay open; other enqueues must not notice."""
    other.execute("SET lock_timeout = '1s'")
    enqueue(conn, "send", queue="new")
    second = enqueue(other, "send", queue="new")
    conn.rollback()
    assert other.execute("SELECT name FROM jobctl.queue").fetchall() == [("new",)]
    assert jobs(other) == [(second, "send", "queued")]
    enqueue(conn, "send", queue="newer")
    enqueue(other, "send", queue="newer")
    conn.commit()
    query = "SELECT name, paused_at FROM jobctl.queue ORDER BY name"
    assert other.execute(query).fetchall() == [("new", None), ("newer", None)]


# In bulk.


def test_ten_thousand_at_once(conn: Connection) -> None:
    """Ids in the order of the call, and all of them claimable in that order."""
    ids = enqueue_many(conn, ({"type": "a", "args": {"n": n}} for n in range(10_000)))
    assert len(set(ids)) == 10_000
    query = """
        SELECT j.id, j.args -> 'n' FROM jobctl.ready AS r JOIN jobctl.job AS j ON j.id = r.job_id
        ORDER BY r.seq
    """
    assert conn.execute(query).fetchall() == [(job_id, n) for n, job_id in enumerate(ids)]


def test_nothing_is_enqueued_by_nothing(conn: Connection) -> None:
    """An empty call is a call."""
    assert enqueue_many(conn, []) == []
    assert conn.info.transaction_status is TransactionStatus.IDLE


def test_a_call_too_large_for_one_message_is_cut(
    conn: Connection, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays one call: ids in order, all or none, in autocommit too."""
    monkeypatch.setattr(item_chunks, "CHUNK_BYTES", 200)
    items: list[Any] = [new_job("a", {"n": n}) for n in range(20)]
    assert len(item_chunks.chunks_of(items)) > 3
    ids = enqueue_many(conn, items)
    assert [row[0]["n"] for row in jobs(conn, "args")] == list(range(20))
    assert ids == sorted(ids)
    assert jobs(other) == []
    conn.rollback()
    with pytest.raises(InvalidJob):
        enqueue_many(other, [*items, NewJob("a", '{"type": ""}')])
    assert jobs(other) == []
    assert len(enqueue_many(other, items)) == 20
    assert len(jobs(other)) == 20


def test_which_job_of_the_call_is_wrong(conn: Connection) -> None:
    """Found before anything is sent, counted from 1 as PostgreSQL counts."""
    items: list[Any] = [{"type": "a"}, {"type": "b", "args": {"at": datetime.now(UTC)}}]
    with pytest.raises(InvalidJob, match=r"job 2 of this call: 'b' .*\$\.at is a datetime"):
        enqueue_many(conn, items)
    with pytest.raises(TypeError, match="job 1 of this call must be"):
        enqueue_many(conn, ["a"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="did you mean 'priority'"):
        enqueue_many(conn, [{"type": "a", "prioritty": 3}])
    assert conn.info.transaction_status is TransactionStatus.IDLE


# What is refused.

FAR = datetime(2200, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ({"type": ""}, "type must have 1 to 200"),
        ({"type": "x" * 201}, "type must have 1 to 200"),
        ({"type": None}, "type must be text"),
        ({"type": "a\0"}, "NUL"),
        ({"type": "\ud800"}, "surrogate"),
        ({"args": {"x": float("nan")}}, r"\$\.x is nan"),
        ({"args": {"x": "\0"}}, r"\$\.x has the character NUL"),
        ({"args": [1]}, "must be a dict"),
        ({"args": {"x": "y" * 70_000}}, "more than 65536 bytes"),
        ({"key": ""}, "key must have 1 to 500"),
        ({"key": "k" * 501}, "key must have 1 to 500"),
        ({"key": "\U0001f600" * 400}, "1500 bytes"),
        ({"key": 5}, "key must be text"),
        ({"key": "a\0"}, "NUL"),
        ({"subject": "s" * 501}, "subject must have"),
        ({"subject": 1842}, "subject must be text"),
        ({"queue": ""}, "queue must have"),
        ({"queue": "q" * 101}, "queue must have"),
        ({"priority": 4}, "priority must be a whole number from 0 to 3"),
        ({"priority": -1}, "priority"),
        ({"priority": 1.0}, "priority"),
        ({"priority": True}, "priority"),
        ({"delay": "soon"}, "delay: 'soon' is not a duration"),
        ({"delay": -5}, "delay"),
        ({"delay": float("inf")}, "delay"),
        ({"delay": "1h", "run_at": FAR - timedelta(1)}, "both a delay and a run_at"),
        ({"run_at": datetime(2100, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is the mistake
        ({"run_at": date(2100, 1, 1)}, "a date alone"),
        ({"run_at": "2100-01-01"}, "must be a datetime"),
        ({"run_at": FAR}, "between 1970 and 2200"),
        ({"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))}, "between"),
        ({"run_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=12)))}, "between"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"timeout": "366d"}, "timeout"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 2**31}, "max_attempts"),
        ({"schema_version": -1}, "schema_version"),
    ],
)
def test_what_is_refused_is_never_sent(
    conn: Connection, job: dict[str, Any], sentence: str
) -> None:
    """A sentence about the field, and the caller's transaction is as it was."""
    kept = enqueue(conn, "kept")
    with pytest.raises(InvalidJob, match=sentence) as caught:
        enqueue(conn, **{"type": "send", **job})
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, JobctlError)
    assert conn.info.transaction_status is TransactionStatus.INTRANS
    assert [row[0] for row in jobs(conn)] == [kept]


def test_a_misspelt_option(conn: Connection) -> None:
    """Is not taken for anything else."""
    with pytest.raises(TypeError, match="did you mean 'delay'"):
        enqueue(conn, "send", dealy="1h")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (5, "must be a JSON object, not number"),
        ({}, "type must be a name"),
        ({"type": "a", "delay": 5}, "a field that jobctl does not know, delay"),
        ({"type": "a", "args": [1]}, "args must be a JSON object, not array"),
        ({"type": "a", "args": {"x": "y" * 70_000}}, "more than 65536"),
        ({"type": "a", "priority": 4}, "priority must be 0 to 3"),
        ({"type": "a", "queue": ""}, "queue must be"),
        ({"type": "a", "key": ""}, "key must have"),
        ({"type": "a", "key": "k" * 501}, "key must have"),
        ({"type": "a", "subject": "s" * 501}, "subject must have"),
        ({"type": "a", "max_attempts": 0}, "max_attempts must be"),
        ({"type": "a", "timeout_seconds": 0}, "timeout must be"),
        ({"type": "a", "timeout_seconds": "NaN"}, "timeout must be"),
        ({"type": "a", "delay_seconds": -1}, "delay must be"),
        ({"type": "a", "delay_seconds": "NaN"}, "delay must be"),
        ({"type": "a", "run_at": "infinity"}, "run_at must lie"),
        ({"type": "a", "run_at": "-infinity"}, "run_at must lie"),
        ({"type": "a", "run_at": "2200-01-01Z"}, "run_at must lie"),
        ({"type": "a", "run_at": "2100-01-01Z", "delay_seconds": 1}, "both a delay"),
        ({"type": "a", "schema_version": -1}, "schema_version must not"),
        ({"type": "a", "key_ttl_seconds": -2}, "key_ttl must be"),
        ({"type": "a", "key_ttl_seconds": "Infinity"}, "key_ttl must be"),
        ({"type": "a", "key_ttl_seconds": 1e300}, "key_ttl must be"),
    ],
)
def test_other_languages_are_refused_as_well(other: Connection, item: Any, sentence: str) -> None:
    """The function checks for itself, and all of the call is refused."""
    call = json.dumps([{"type": "fine"}, item])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"job 2 .*{sentence}"):
        other.execute("SELECT jobctl.enqueue_many(%s::jsonb)", (call,))
    assert jobs(other) == []


def test_from_sql(other: Connection) -> None:
    """The function that other languages call."""
    call = "SELECT jobctl.enqueue('send', '{\"n\": 1}', key => 'k', delay => interval '1 hour')"
    row = other.execute(call.encode()).fetchone()
    assert other.execute(call.encode()).fetchone() == row
    assert jobs(other, "type, args, key, state") == [("send", {"n": 1}, "k", "scheduled")]


def test_larger_arguments_by_setting(
    conn: Connection, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOBCTL_MAX_ARGS_BYTES for Python, jobctl.max_args_bytes for SQL."""
    monkeypatch.setenv("JOBCTL_MAX_ARGS_BYTES", "100000")
    enqueue(conn, "send", {"x": "y" * 90_000})
    with pytest.raises(InvalidJob, match="100000"):
        enqueue(conn, "send", {"x": "y" * 110_000})
    call = "SELECT jobctl.enqueue('send', jsonb_build_object('x', repeat('y', 90000)))"
    with other.transaction():
        other.execute("SET LOCAL jobctl.max_args_bytes = 100000")
        other.execute(call)
    # What was set for one transaction is an empty text afterwards, and that is no limit of 0.
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="65536"):
        other.execute(call)


# Whose connection it is.


def test_what_is_no_connection(conn: Connection) -> None:
    """Said with what to pass instead."""

    class Pool:
        def getconn(self) -> None: ...

    for stranger, hint in (
        (conn.cursor(), "cursor.connection"),
        (Pool(), "pool.connection"),
        ("dsn", "builtins.str"),
    ):
        with pytest.raises(TypeError, match=hint):
            enqueue(stranger, "send")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=hint):
            enqueue_many(stranger, [])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="AsyncConnection"):
        asyncio.run(aenqueue(conn, "send"))  # type: ignore[arg-type]


def test_connections_with_habits_of_their_own(database: str) -> None:
    """Rows as dicts, statements bound by the client or in another dialect, an old encoding."""
    for factory in (psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor):
        with psycopg.connect(database, row_factory=dict_row, cursor_factory=factory) as connection:
            assert enqueue(connection, "send", {"x": "ệ"}, key="ệ") > 0
            assert len(enqueue_many(connection, [{"type": "a"}])) == 1
    with psycopg.connect(database, client_encoding="LATIN1") as connection:
        enqueue(connection, "latin", {"x": "ệ"}, key="☃")
    with psycopg.connect(database) as connection:
        assert jobs(connection, "args, key")[-1] == ({"x": "ệ"}, "☃")
        with connection.pipeline():
            first, again = enqueue(connection, "p", key="p"), enqueue(connection, "p", key="p")
        assert first == again


def test_a_schema_that_is_not_there(fresh_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to type, for whoever reads the traceback; sync and async."""
    with psycopg.connect(fresh_database) as connection:
        with pytest.raises(SchemaError, match="run jobctl migrate"), connection.transaction():
            enqueue(connection, "send")
        connection.execute("CREATE SCHEMA jobctl")
        with pytest.raises(SchemaError, match="run jobctl migrate"), connection.transaction():
            enqueue_many(connection, [{"type": "send"}])
        monkeypatch.setenv("JOBCTL_SCHEMA", "elsewhere")
        with pytest.raises(SchemaError, match='no schema "elsewhere"'):
            enqueue(connection, "send")
        monkeypatch.setenv("JOBCTL_SCHEMA", "x" * 64)
        with pytest.raises(ValueError, match="64 bytes"):
            enqueue(connection, "send")

    async def story() -> None:
        monkeypatch.setenv("JOBCTL_SCHEMA", "elsewhere")
        async with await psycopg.AsyncConnection.connect(fresh_database) as conn:
            with pytest.raises(SchemaError, match='no schema "elsewhere"'):
                await enqueue(conn, "send")

    asyncio.run(story())


@pytest.mark.parametrize("schema", ["Two Words", 'quote"s', "100%s {x}", "Hà Nội ☃", "x" * 63])
def test_a_schema_by_any_name(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    """JOBCTL_SCHEMA names it, and jobs land there."""
    migrate(fresh_database, schema)
    monkeypatch.setenv("JOBCTL_SCHEMA", schema)
    with psycopg.connect(fresh_database) as connection:
        job_id = enqueue(connection, "send", key="k")
        assert enqueue_many(connection, [{"type": "send", "key": "k"}]) == [job_id]
        query = sql.SQL("SELECT id FROM {}.jobs").format(sql.Identifier(schema))
        assert connection.execute(query).fetchall() == [(job_id,)]


def test_a_hostile_search_path(conn: Connection, other: Connection) -> None:
    """Whatever stands in front on the caller's path, or in its temporary schema, is not touched."""
    conn.execute(
        """
        CREATE SCHEMA evil;
        CREATE TABLE evil.job (LIKE jobctl.job);
        CREATE TABLE evil.ready (LIKE jobctl.ready);
        CREATE TEMPORARY TABLE job_key (LIKE jobctl.job_key);
        CREATE FUNCTION evil.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 1/0::bigint';
        CREATE FUNCTION evil.jsonb_typeof(jsonb) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
        CREATE FUNCTION evil.ring() RETURNS void LANGUAGE sql AS 'SELECT 1/0';
        CREATE FUNCTION evil.md5(text) RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
        CREATE FUNCTION evil.never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
        CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never);
        """
    )
    for path in ("evil, pg_temp, pg_catalog", "", "pg_temp, evil, jobctl"):
        conn.execute("SELECT pg_catalog.set_config('search_path', %s, false)", (path,))
        first = enqueue(conn, "send", key=f"k{path}")
        assert enqueue(conn, "send", key=f"k{path}") == first
        assert conn.execute("SELECT count(*) FROM evil.job").fetchone() == (0,)
        assert conn.execute("SELECT count(*) FROM pg_temp.job_key").fetchone() == (0,)
    conn.rollback()


# The doorbell.


@pytest.fixture
def listener(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute("SELECT jobctl.channel()").fetchone()
        assert row is not None
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(row[0])))
        yield connection


def rings(connection: Connection) -> list[str]:
    """What has been heard; whatever was sent before this statement's end is in it."""
    connection.execute("SELECT 1")
    return [notify.payload for notify in connection.notifies(timeout=0)]


def test_the_bell_rings_at_the_commit(
    conn: Connection, other: Connection, listener: Connection
) -> None:
    """Not before, and not at all when it is rolled back or when the job is for later."""
    enqueue(other, "send")  # the queue is born: dispatchers are told to look at queues
    assert rings(listener) == ["look"]
    enqueue(conn, "send")
    assert rings(listener) == []
    conn.rollback()
    assert rings(listener) == []
    wait_out_the_spacing(other)
    enqueue(conn, "send", delay="1h")
    conn.commit()
    assert rings(listener) == []
    enqueue(conn, "send")
    conn.commit()
    assert rings(listener) == [""]


def wait_out_the_spacing(connection: Connection) -> None:
    """The last ring is long ago; said to the word that keeps it, instead of waiting."""
    connection.execute("SELECT setval('jobctl.ring_at', 0)")


def test_the_bell_rings_once_in_a_while(other: Connection, listener: Connection) -> None:
    """NOTIFY makes commits queue up: hundreds of enqueues ring a few times."""
    enqueue(other, "send")
    rings(listener)
    begun = datetime.now(UTC)
    for _ in range(200):
        enqueue(other, "send")
    elapsed = datetime.now(UTC) - begun
    heard = rings(listener)
    assert 1 <= len(heard) <= elapsed / timedelta(milliseconds=20) + 2
    assert len(heard) < 150


def test_a_clock_that_was_set_back_does_not_silence_the_bell(
    other: Connection, listener: Connection
) -> None:
    """A last ring in the future counts as none."""
    enqueue(other, "send")
    rings(listener)
    other.execute("SELECT setval('jobctl.ring_at', 9000000000000)")
    enqueue(other, "send")
    assert rings(listener) == [""]


# What dispatchers rest on.


def test_a_transaction_has_its_id_before_it_takes_a_number(fresh_database: str) -> None:
    """The second look is bounded by the oldest running transaction id: a number of `ready` taken
    before its transaction has one could fall below everybody's mark and never be seen."""
    migrate(fresh_database)
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute(
            """
            CREATE FUNCTION jobctl.careful_nextval() RETURNS bigint LANGUAGE plpgsql AS $$
            BEGIN
                IF pg_current_xact_id_if_assigned() IS NULL THEN
                    RAISE EXCEPTION 'a number before an id';
                END IF;
                RETURN nextval('jobctl.ready_seq');
            END $$;
            ALTER TABLE jobctl.ready ALTER seq SET DEFAULT jobctl.careful_nextval();
            """
        )
        # The trap works: a writer that takes its number first is caught.
        with pytest.raises(psycopg.errors.RaiseException, match="a number before an id"):
            connection.execute("INSERT INTO jobctl.ready VALUES ('q', 0, '', DEFAULT, 1)")
        enqueue(connection, "send")
        enqueue_many(connection, [{"type": "send", "key": str(n)} for n in range(3)])
        connection.execute("SELECT jobctl.enqueue('send')")


def test_a_plan_made_on_empty_tables_stays_right(fresh_database: str) -> None:
    """A web process plans its enqueue on the first day and keeps the plan for months."""
    migrate(fresh_database)
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute("ALTER TABLE jobctl.job_key SET (autovacuum_enabled = off)")
        connection.execute("ALTER TABLE jobctl.job SET (autovacuum_enabled = off)")
        for n in range(10):
            enqueue(connection, "send", key=f"first {n}")
        enqueue_many(connection, [{"type": "send", "key": str(n)} for n in range(5_000)])
        before = reads(connection)
        for n in range(50):
            enqueue(connection, "send", key=f"later {n}")
            enqueue(connection, "send", key=str(n))
        assert reads(connection) - before < 50 * 2 * 20


def reads(connection: Connection) -> int:
    """How many rows and index entries have been read in our tables so far."""
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute(
        """
        SELECT sum(t.seq_tup_read + coalesce(i.read, 0))::bigint
        FROM pg_stat_user_tables AS t
        LEFT JOIN (
            SELECT relid, sum(idx_tup_read) AS read FROM pg_stat_user_indexes GROUP BY relid
        ) AS i ON i.relid = t.relid
        WHERE t.schemaname = 'jobctl'
        """
    ).fetchone()
    assert row is not None
    return int(row[0])
