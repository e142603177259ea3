"""Traces, with OpenTelemetry's real SDK: an enqueue is a span, and each attempt is linked to it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import jobctl
import jobctl.otel
from tests.system.host import Hosts, Jobs
from tests.waiting import until


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """What this process, the producer, has exported."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    jobctl.otel.instrument(provider)
    try:
        yield exporter
    finally:
        jobctl.otel.uninstrument()


def traceparent(jobs: Jobs, job: int) -> str | None:
    row = jobs.connection.execute(
        "SELECT traceparent FROM jobctl.job WHERE id = %s", (job,)
    ).fetchone()
    assert row is not None
    said: str | None = row["traceparent"]
    return said


def carried(jobs: Jobs, job: int) -> str:
    """Without version and flags."""
    said = traceparent(jobs, job)
    assert said is not None
    version, where, span, _ = said.split("-")
    assert version == "00"
    return f"{where}-{span}"


def context_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}-{span.context.span_id:016x}"


def test_an_enqueue_is_a_span_that_its_jobs_carry(
    database: str, jobs: Jobs, spans: InMemorySpanExporter
) -> None:
    """One for the call, whatever kind of call; in the caller's own trace if there is one."""
    with psycopg.connect(database, autocommit=True) as connection:
        one = jobctl.enqueue(connection, "send", {"secret": "hunter2"})
        first, second = jobctl.enqueue_many(connection, [{"type": "send"}, {"type": "print"}])

    async def later() -> int:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            return await jobctl.aenqueue(connection, "send")

    awaited = asyncio.run(later())
    single, several, other = spans.get_finished_spans()
    assert (single.name, several.name, other.name) == ("enqueue send", "enqueue", "enqueue send")
    assert single.kind.name == "PRODUCER"
    assert carried(jobs, one) == context_of(single)
    assert carried(jobs, first) == carried(jobs, second) == context_of(several)
    assert carried(jobs, awaited) == context_of(other)
    assert "hunter2" not in single.to_json()


def test_a_refused_enqueue_is_a_failed_span_without_its_words(
    database: str, spans: InMemorySpanExporter
) -> None:
    """The class of the error, and nothing that somebody wrote."""
    with psycopg.connect(database) as connection, pytest.raises(jobctl.InvalidJob):
        connection.execute("SET LOCAL jobctl.max_args_bytes = '1'")
        jobctl.enqueue_many(connection, [{"type": "send", "args": {"a": 1}, "after": [2**62]}])
    (span,) = spans.get_finished_spans()
    assert span.status.status_code.name == "ERROR" and not span.status.description
    assert span.attributes is not None and span.attributes["error.type"] == "InvalidJob"
    assert not span.events


def test_each_attempt_is_a_trace_of_its_own_that_is_linked_to_the_enqueue(
    hosts: Hosts, jobs: Jobs, spans: InMemorySpanExporter
) -> None:
    """Also after a retry; what the handler does, plain or async, is inside of it. A snooze is no
    error, and what a handler raised is not told."""
    hosts.start("one", "--slots", "1", app="traced").ready()
    with psycopg.connect(hosts.dsn, autocommit=True) as connection:
        failing = jobctl.enqueue(connection, "fail_once", {"secret": "hunter2"})
        later = jobctl.enqueue(connection, "later")
        snoozed = jobctl.enqueue(connection, "snooze")
    foreign = jobs.enqueue("later")  # enqueued in SQL, where nobody traces
    for job, state in ((failing, "succeeded"), (later, "succeeded"), (snoozed, "scheduled")):
        jobs.wait(job, state)
    jobs.wait(foreign, "succeeded")
    jobs.wait(jobs.enqueue("tell"), "succeeded")
    told: list[dict[str, Any]] = json.loads((hosts.folder / "spans").read_text())
    attempts = [span for span in told if span["kind"] == "CONSUMER"]
    of_job = {
        job: [one for one in attempts if one["attributes"]["messaging.message.id"] == str(job)]
        for job in (failing, later, snoozed, foreign)
    }
    enqueued = {span.name: context_of(span) for span in spans.get_finished_spans()}
    first, second = of_job[failing]
    assert (first["status"], second["status"]) == ("ERROR", "UNSET")
    assert first["attributes"]["error.type"] == "ValueError"
    assert [one["attributes"]["jobctl.job.attempt"] for one in (first, second)] == [1, 2]
    assert first["links"] == second["links"] == [enqueued["enqueue fail_once"]]
    assert first["parent"] is None and first["trace"] != second["trace"]
    assert first["name"] == "process fail_once"
    assert first["attributes"]["messaging.destination.name"] == "mail"
    assert of_job[later][0]["links"] == [enqueued["enqueue later"]]
    assert of_job[snoozed][0]["status"] == "UNSET"
    assert of_job[foreign][0]["links"] == []
    parents = {span["name"]: span["parent"] for span in told}
    assert parents["inside"] == second["span"]
    assert parents["inside later"] in [of_job[job][0]["span"] for job in (later, foreign)]
    assert "hunter2" not in json.dumps(attempts)


def test_who_does_not_trace_has_no_part_of_it(database: str, jobs: Jobs) -> None:
    """No import, no traceparent."""
    program = "import sys, jobctl; print([name for name in sys.modules if 'telemetry' in name])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with psycopg.connect(database, autocommit=True) as connection:
        assert traceparent(jobs, jobctl.enqueue(connection, "send")) is None


def test_what_is_no_traceparent_is_refused(jobs: Jobs) -> None:
    """From any language, at the door and in the table."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="traceparent"):
        jobs.connection.execute(
            """SELECT * FROM jobctl.enqueue_many('[{"type": "send", "traceparent": "x"}]')"""
        )
    job = jobs.enqueue("send")
    with pytest.raises(psycopg.errors.CheckViolation):
        jobs.connection.execute(
            "UPDATE jobctl.job SET traceparent = repeat('0', 300) WHERE id = %s", (job,)
        )
    until(lambda: traceparent(jobs, job) is None, what="nothing of it")
