"""A declaration is checked when it is imported, and a call before anything is sent."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

import jobctl
from jobctl.workerproc.context import Context, Token
from jobctl.workerproc.errors import DeclarationError
from jobctl.workerproc.job import Job, job
from jobctl.workerproc.retry import Retry


def unique() -> str:
    """A name that no other test has: the registry is the process's."""
    return f"test_{uuid.uuid4().hex[:10]}"


@job(
    name="test_job_send",
    queue="mail",
    priority=2,
    timeout="30s",
    soft_timeout="25s",
    retry=Retry(max_attempts=7, min_backoff="1s", permanent=(ValueError,)),
    schema_version=3,
    key_ttl="2h",
    owner="billing",
    link="https://admin.example/{subject}",
    memory="512MiB",
    limit="mail-provider",
    cpu="2m",
)
def send(ctx: Context, invoice_id: int, language: str = "vi") -> str:
    """Sends it."""
    return f"{invoice_id} {language} {ctx.attempt}"


@job(name="test_job_crawl", key_ttl="forever")
async def crawl(ctx: Context, **pages: int) -> int:
    return sum(pages.values())


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(database) as connection:
        yield connection
        connection.rollback()


# What a declaration makes.


def test_a_declared_function_is_still_a_function() -> None:
    """Tests call it; its name, words and module are its own."""
    ctx = Context(type="test_job_send", attempt=2)
    assert send(ctx, 5) == "5 vi 2"
    assert send(ctx, invoice_id=5, language="en") == "5 en 2"
    assert asyncio.run(crawl(ctx, a=1, b=2)) == 3
    assert send.__name__ == "send"
    assert send.__doc__ == "Sends it."
    assert send.__module__ == __name__
    assert repr(send) == "<jobctl.Job test_job_send>"


def test_what_is_declared_is_what_the_type_says() -> None:
    """All of it travels to the supervisor."""
    assert send.job_type.to_dict() == {
        "name": "test_job_send",
        "queue": "mail",
        "priority": 2,
        "timeout_seconds": 30.0,
        "soft_timeout_seconds": 25.0,
        "max_attempts": 7,
        "max_crashes": 3,
        "min_backoff_seconds": 1.0,
        "max_backoff_seconds": 3_600.0,
        "max_doublings": 16,
        "max_elapsed_seconds": None,
        "ack": "late",
        "cancel": "anywhere",
        "on_cancel": False,
        "schema_version": 3,
        "key_ttl_seconds": 7_200.0,
        "owner": "billing",
        "link": "https://admin.example/{subject}",
        "memory_bytes": 512 * 2**20,
        "limit_key": "mail-provider",
        "cpu_seconds": 120.0,
    }
    assert crawl.job_type.key_ttl_seconds is None
    assert send.retry.is_permanent(ValueError())


def test_the_defaults() -> None:
    """Nothing has to be said."""

    @jobctl.job
    def test_job_plain(ctx: Context) -> None: ...

    kind = test_job_plain.job_type
    assert (kind.name, kind.queue, kind.priority) == ("test_job_plain", "default", 0)
    assert (kind.timeout_seconds, kind.soft_timeout_seconds) == (300.0, None)
    assert (kind.max_attempts, kind.max_crashes, kind.schema_version) == (5, 3, 1)
    assert kind.key_ttl_seconds == 86_400.0


# What is refused at import.


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tmeout": "5s"}, "did you mean 'timeout'"),
        ({"prioritty": 1}, "did you mean 'priority'"),
        ({"max_attempts": 3}, r"retry=jobctl\.Retry\(max_attempts="),
        ({"memory": "much"}, "memory: 'much' is not an amount of memory"),
        ({"memory": "1kB"}, "memory_bytes must be a whole number"),
        ({"cpu": 0}, "cpu_seconds must be more than 0"),
        ({"ack": "soon"}, "ack must be 'late' or 'early'"),
        ({"cancel": "never"}, "cancel must be 'anywhere' or 'before_commit'"),
        ({"acknowledge": "early"}, "no option 'acknowledge'"),
        ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"timeout": 0}, "timeout_seconds must be more than 0"),
        ({"timeout": "400d"}, "timeout_seconds"),
        ({"timeout": "5s", "soft_timeout": "5s"}, "soft_timeout_seconds must be less"),
        ({"soft_timeout": -1}, "soft_timeout: -1 is out of range"),
        ({"priority": 4}, "priority must be a whole number from 0 to 3"),
        ({"queue": ""}, "queue must be text"),
        ({"queue": None}, "queue must be text"),
        ({"name": "x" * 201}, "name must be text"),
        ({"name": "a\0"}, "cannot store"),
        ({"schema_version": -1}, "schema_version"),
        ({"key_ttl": "never"}, "key_ttl: 'never'"),
        ({"retry": 5}, r"must be a jobctl\.Retry"),
        ({"owner": ""}, "owner"),
        ({"link": 5}, "link"),
    ],
)
def test_options_that_are_wrong(options: dict[str, Any], sentence: str) -> None:
    """Said at import, with the function's place."""
    with pytest.raises(DeclarationError, match=f"test_job.py:.*{sentence}"):

        @job(**{"name": unique(), **options})
        def handler(ctx: Context) -> None: ...


def no_parameters() -> None: ...
def no_context(invoice_id: int) -> None: ...
def only_keywords(*, ctx: Context) -> None: ...
def positional(ctx: Context, invoice_id: int, /) -> None: ...
def many(ctx: Context, *invoices: int) -> None: ...
def clash(ctx: Context, key: str) -> None: ...
def later_clash(ctx: Context, *, after: str) -> None: ...
def generator(ctx: Context) -> Iterator[int]:
    yield 1


async def async_generator(ctx: Context) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (no_parameters, "first parameter of a handler must be ctx .*it has none"),
        (no_context, "must be ctx .* not 'invoice_id'"),
        (only_keywords, "must be ctx"),
        (positional, "invoice_id.* cannot be filled"),
        (many, r"\*invoices.* cannot be filled"),
        (clash, "'key' has the name of an option of enqueue: .* key_"),
        (later_clash, "'after' has the name of an option"),
        (generator, "is a generator"),
        (async_generator, "is a generator"),
        (lambda ctx: None, "a lambda has no name"),
        (len, "belongs above a function"),
        (Context, "belongs above a function"),
        ("send_invoice", r"by name: @jobctl.job\(name='send_invoice'\)"),
    ],
)
def test_functions_that_cannot_be_handlers(handler: Any, sentence: str) -> None:
    """Said at import, not when the first job runs at night."""
    with pytest.raises(DeclarationError, match=sentence):
        job(handler)


def test_contexts_by_other_names() -> None:
    """Annotated, or plainly not used."""

    def annotated(attempt: Context, n: int) -> None: ...
    def unused(_ctx: object) -> None: ...

    for handler in (annotated, unused):
        assert isinstance(job(name=unique())(handler), Job)


# Enqueue.


def test_options_and_arguments(conn: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Options are options, everything else is the handler's; the type's words fill the rest."""
    first = send.enqueue(conn, invoice_id=1842, key="k", subject="invoice:1842", delay="10m")
    assert send.enqueue(conn, invoice_id=1842, key="k") == first
    send.enqueue(conn, invoice_id=1, queue="other", priority=0, timeout="5s", max_attempts=1)
    crawl.enqueue(conn, a=1, key="k")
    columns = "type, args, queue, priority, schema_version, key, subject, state"
    query = f"SELECT {columns} FROM jobctl.jobs ORDER BY id"  # noqa: S608 - the test's own words
    assert conn.execute(query.encode()).fetchall() == [
        (
            "test_job_send",
            {"invoice_id": 1842},
            "mail",
            2,
            3,
            "k",
            "invoice:1842",
            "scheduled",
        ),
        ("test_job_send", {"invoice_id": 1}, "other", 0, 3, None, None, "blocked"),
        ("test_job_crawl", {"a": 1}, "default", 0, 1, "k", None, "queued"),
    ]
    query = "SELECT timeout_seconds, max_attempts FROM jobctl.job WHERE queue = 'other'"
    assert conn.execute(query).fetchone() == (5.0, 1)
    query = "SELECT type, ttl_seconds FROM jobctl.job_key ORDER BY type"
    assert conn.execute(query).fetchall() == [("test_job_crawl", None), ("test_job_send", 7_200.0)]


def test_async_connections(database: str) -> None:
    """Awaited, with enqueue and aenqueue alike."""

    async def story() -> list[int]:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            return [
                await send.enqueue(conn, invoice_id=1),
                await send.aenqueue(conn, invoice_id=2),
                *(await jobctl.aenqueue_many(conn, [send.item(invoice_id=3)])),
            ]

    assert len(set(asyncio.run(story()))) == 3


def test_many_items(conn: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Of several types, in one call."""
    ids = jobctl.enqueue_many(
        conn, [*(send.item(invoice_id=n, key=f"k{n % 5}") for n in range(10)), crawl.item(x=1)]
    )
    assert ids[:5] == ids[5:10]
    assert len(set(ids)) == 6


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        ({}, TypeError, "missing a required argument: 'invoice_id'. It takes invoice_id, language"),
        ({"invoice_id": 1, "langage": "en"}, TypeError, "did you mean 'language'"),
        ({"invoice_id": 1, "dealy": "5m"}, TypeError, "did you mean 'delay'"),
        ({"invoice_id": 1, "ctx": None}, TypeError, "ctx"),
        ({"invoice_id": 1, "priority": 7}, ValueError, "priority"),
        ({"invoice_id": datetime.now(UTC)}, ValueError, r"\$\.invoice_id is a datetime"),
        ({"invoice_id": 1, "run_at": datetime(2100, 1, 1)}, ValueError, "time zone"),  # noqa: DTZ001
    ],
)
def test_a_wrong_call_is_never_sent(
    conn: psycopg.Connection[tuple[Any, ...]],
    words: dict[str, Any],
    kind: type[Exception],
    sentence: str,
) -> None:
    """Found at the line that makes it; the transaction is untouched."""
    with pytest.raises(kind, match=sentence):
        send.enqueue(conn, **words)
    with pytest.raises(kind, match=sentence):
        send.item(**words)
    assert conn.info.transaction_status is TransactionStatus.IDLE


def test_arguments_that_came_with_a_job() -> None:
    """The slot binds them again: the code may be another than the enqueuer's."""
    assert send.bind({"invoice_id": 5}) == {"invoice_id": 5}
    with pytest.raises(TypeError, match="test_job_send cannot be called like this"):
        send.bind({"invoice": 5})


# The context.


def test_what_a_context_knows(caplog: pytest.LogCaptureFixture) -> None:
    """Time that remains, a token to compare, a log that says whose it is."""
    ctx = Context(type="send", job_id=5, attempt=2, token=Token(255, 7), deadline=monotonic() + 60)
    assert 59 < ctx.remaining() <= 60
    assert Context(type="send", deadline=monotonic() - 1).remaining() == 0
    assert str(ctx.token) == "ff-7"
    assert ctx.token > Token(255, 6)
    assert ctx.token != Token(254, 7)
    with caplog.at_level(logging.INFO):
        ctx.log.info("sent %s", 1, extra={"mine": True})
    (line,) = caplog.records
    assert line.getMessage() == "sent 1"
    assert line.__dict__["job_id"] == 5
    assert line.__dict__["job_type"] == "send"
    assert line.__dict__["attempt"] == 2
    assert line.__dict__["mine"] is True


def test_public_names() -> None:
    """What `from jobctl import *` gives exists, and the version is the distribution's."""
    for name in jobctl.__all__:
        assert getattr(jobctl, name) is not None
    assert jobctl.__version__[0].isdigit()
