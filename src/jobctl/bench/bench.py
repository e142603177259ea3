"""The runs of the benchmark, in order, and the object that they fill."""

from __future__ import annotations

import os
import platform
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, monotonic_ns, sleep
from typing import Any

import psycopg
from psycopg import sql

import jobctl
from jobctl.bench import app, limit, processes
from jobctl.store.embedded import EmbeddedPostgres, throw_away
from jobctl.store.migrate import migrate

#: The bare loop is given batches of this size: about what a supervisor claims under load.
BATCH = 64
BULK = 5_000
SINGLE = 2_000
IDLE_SAMPLES, IDLE_SPACING = 200, 0.1
LOAD_RATE, LOAD_SECONDS = 50, 20
#: How long anything may take before the benchmark gives up.
PATIENCE = 600.0

Say = Callable[[str], None]


class BenchError(Exception):
    """The benchmark could not be run; a sentence."""


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    jobs: int
    slots: int
    dsn: str | None  # None: a throw-away embedded PostgreSQL with its default settings
    old_snapshot: bool = False  # another session holds one while the jobs are drained


def run(options: Options, say: Say) -> dict[str, Any]:
    """Runs everything; returns the object that `--json` prints. Raises BenchError."""
    with ExitStack() as stack:
        server = None
        dsn = options.dsn
        if dsn is None:
            server = stack.enter_context(throw_away())
            dsn = server.dsn()
        schema = f"jobctl_bench_{secrets.token_hex(4)}"
        migrate(dsn, schema)
        stack.callback(_drop, dsn, schema)
        stack.enter_context(_environment(JOBCTL_SCHEMA=schema))
        return _measure(options, dsn, schema, server, say)


def _measure(
    options: Options, dsn: str, schema: str, server: EmbeddedPostgres | None, say: Say
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        say(f"enqueueing {SINGLE} jobs one by one, then {options.jobs} in bulk")
        result["enqueue_per_second"] = round(_enqueue_singly(connection))
        result["bulk_enqueue_per_second"] = round(_enqueue_in_bulk(connection, options.jobs))
        _settle_down(connection, schema)
        say("draining them with the bare statements (the limit)")
        result["limit_jobs_per_second"] = round(limit.drain(dsn, schema, "bench", BATCH))
        say(f"enqueueing {options.jobs} again and draining them with {options.slots} slots")
        _enqueue_in_bulk(connection, options.jobs)
        _settle_down(connection, schema)
        with ExitStack() as stack:
            if options.old_snapshot:
                stack.enter_context(_old_snapshot(dsn))
            supervisor = stack.enter_context(_supervisor(options, dsn, schema))
            _drain(result, connection, schema, options, supervisor, server)
            say("measuring commit to start, at idle and at 50 jobs/s")
            idle = _latencies(connection, schema, IDLE_SAMPLES, IDLE_SPACING)
            result["idle_latency_ms"] = idle
            count = LOAD_RATE * LOAD_SECONDS
            result["load_latency_ms"] = _latencies(connection, schema, count, 1 / LOAD_RATE)
            result["memory_mib"] = _memory(supervisor.pid)
            say("doing nothing for ten seconds")
            result["idle_cpu_percent"] = _idle_cpu(supervisor.pid, server)
        result["conditions"] = _conditions(options, connection, server)
    return result


def _enqueue_singly(connection: psycopg.Connection[Any]) -> float:
    begun = monotonic()
    for at in range(SINGLE):
        app.bench_noop.enqueue(connection, a=at)
    return SINGLE / (monotonic() - begun)


def _enqueue_in_bulk(connection: psycopg.Connection[Any], jobs: int) -> float:
    begun = monotonic()
    for at in range(0, jobs, BULK):
        many = min(BULK, jobs - at)
        jobctl.enqueue_many(connection, [app.bench_noop.item(a=at + each) for each in range(many)])
    return jobs / (monotonic() - begun)


def _settle_down(connection: psycopg.Connection[Any], schema: str) -> None:
    """Vacuums what was loaded, and writes it out: not a cost of draining."""
    for table in ("job", "ready"):
        connection.execute(sql.SQL("VACUUM ANALYZE {}").format(sql.Identifier(schema, table)))
    with suppress(psycopg.errors.InsufficientPrivilege):
        connection.execute("CHECKPOINT")


@contextmanager
def _old_snapshot(dsn: str) -> Iterator[None]:
    """Another session that keeps dead rows from being cleaned away."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM pg_class")
        yield


@contextmanager
def _supervisor(options: Options, dsn: str, schema: str) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor like any other, with the benchmark's app."""
    with tempfile.TemporaryDirectory(prefix="jobctl-bench-") as folder:
        log = Path(folder) / "log"
        command = [
            sys.executable, "-m", "jobctl", "run", "--app", app.__name__,
            "--slots", str(options.slots), "--metrics-listen", "off",
            "--runtime-dir", folder,
        ]  # fmt: skip
        environment = {**os.environ, "JOBCTL_DSN": dsn, "JOBCTL_SCHEMA": schema}
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment
            )
        try:
            yield process
            if process.poll() is not None:
                raise BenchError(f"the supervisor ended by itself:\n{log.read_text()[-2000:]}")
        finally:
            process.terminate()
            process.wait(timeout=60)


def _drain(
    result: dict[str, Any],
    connection: psycopg.Connection[Any],
    schema: str,
    options: Options,
    supervisor: subprocess.Popen[bytes],
    server: EmbeddedPostgres | None,
) -> None:
    history = sql.Identifier(schema, "history")
    ready = sql.Identifier(schema, "ready")
    count = sql.SQL(
        "SELECT (SELECT last_value FROM {}), EXISTS (SELECT FROM {}), EXISTS (SELECT FROM {})"
    ).format(sql.Identifier(schema, "ready_seq"), ready, sql.Identifier(schema, "claim"))
    before = _cpu(supervisor.pid, server)
    started_before = monotonic()
    while True:
        row = connection.execute(count).fetchone()
        assert row is not None  # noqa: S101 - a SELECT without FROM returns a row
        if not row[1] and not row[2]:
            break
        _check(supervisor, started_before)
        sleep(0.05)
    after = _cpu(supervisor.pid, server)
    span = sql.SQL(
        "SELECT count(*), extract(epoch FROM max(finished_at) - min(started_at))::float"
        " FROM {} WHERE session_id <> 1"
    ).format(history)
    row = connection.execute(span).fetchone()
    assert row is not None  # noqa: S101 - an aggregate returns a row
    jobs, seconds = row
    if jobs != options.jobs:
        raise BenchError(f"{jobs} jobs were drained, not {options.jobs}")
    result["drain_jobs_per_second"] = round(jobs / seconds)
    result["drain_tenths_per_second"] = _tenths(connection, history, jobs)
    result["cpu_us_per_job"] = _difference(before, after, 1e6 / jobs)


def _tenths(connection: psycopg.Connection[Any], history: sql.Identifier, jobs: int) -> list[int]:
    """Jobs a second in each tenth of the drain, to see whether it slows down."""
    query = sql.SQL(
        "SELECT extract(epoch FROM max(finished_at) - min(finished_at))::float FROM ("
        " SELECT finished_at, ntile(10) OVER (ORDER BY finished_at) AS tenth FROM {}"
        " WHERE session_id <> 1) AS t GROUP BY tenth ORDER BY tenth"
    ).format(history)
    rows = connection.execute(query).fetchall()
    return [round(jobs / 10 / row[0]) if row[0] else 0 for row in rows]


def _latencies(
    connection: psycopg.Connection[Any], schema: str, count: int, spacing: float
) -> dict[str, float]:
    """Milliseconds from the commit's answer to the handler's first line."""
    committed: dict[int, int] = {}
    due = monotonic()
    for _ in range(count):
        job = app.bench_latency.enqueue(connection)
        committed[job] = monotonic_ns()
        due += spacing
        sleep(max(0.0, due - monotonic()))
    query = sql.SQL(
        "SELECT id, (result ->> 'started_ns')::bigint FROM {} WHERE type = 'bench_latency'"
        " AND id = ANY(%s)"
    ).format(sql.Identifier(schema, "history"))
    begun = monotonic()
    rows: list[Any] = []
    while len(rows) < count:
        if monotonic() - begun > PATIENCE:
            raise BenchError("jobs that were enqueued for the latency were not run")
        rows = connection.execute(query, (list(committed),)).fetchall()
        sleep(0.05)
    waits = sorted(max(0.0, (started - committed[job]) / 1e6) for job, started in rows)
    return {
        name: round(waits[min(len(waits) - 1, int(len(waits) * part))], 2)
        for name, part in (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
    }


def _cpu(supervisor: int, server: EmbeddedPostgres | None) -> dict[str, Any]:
    """CPU seconds so far: the supervisor, what it has forked, and PostgreSQL if it is ours."""
    postmaster = None if server is None else server.pid()
    return {
        "supervisor": processes.cpu_seconds([supervisor]),
        "slots": processes.cpu_seconds(processes.descendants(supervisor)),
        "postgresql": None
        if postmaster is None
        else processes.cpu_seconds([postmaster, *processes.descendants(postmaster)]),
    }


def _difference(
    before: Mapping[str, Any], after: Mapping[str, Any], factor: float
) -> dict[str, float | None]:
    return {
        kind: None if after[kind] is None else round((after[kind] - before[kind]) * factor, 2)
        for kind in after
    }


def _idle_cpu(supervisor: int, server: EmbeddedPostgres | None) -> dict[str, float | None]:
    """Per cent of one core, over ten seconds without a job."""
    before, begun = _cpu(supervisor, server), monotonic()
    sleep(10)
    after, seconds = _cpu(supervisor, server), monotonic() - begun
    return {
        kind: None
        if after[kind] is None
        else round((after[kind] - before[kind]) / seconds * 100, 2)
        for kind in after
    }


def _memory(supervisor: int) -> dict[str, float]:
    below = {pid: processes.title(pid) for pid in processes.descendants(supervisor)}
    template = [pid for pid, name in below.items() if name.startswith("jobctl: template")]
    slots = [pid for pid, name in below.items() if name.startswith("jobctl: slot")]
    return {
        "supervisor_pss": round(processes.pss_mib(supervisor), 1),
        "template_pss": round(max((processes.pss_mib(pid) for pid in template), default=0.0), 1),
        "slot_pss": round(max((processes.pss_mib(pid) for pid in slots), default=0.0), 1),
        "slot_private": round(max((processes.private_mib(pid) for pid in slots), default=0.0), 1),
    }


def _conditions(
    options: Options, connection: psycopg.Connection[Any], server: EmbeddedPostgres | None
) -> dict[str, Any]:
    names = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "wal_level")
    settings: Mapping[str, Any] = {
        name: row[0]
        for name in names
        if (row := connection.execute("SELECT current_setting(%s)", (name,)).fetchone())
    }
    return {
        "jobctl": jobctl.__version__,
        "python": platform.python_version(),
        "postgresql": connection.info.parameter_status("server_version"),
        "embedded": server is not None,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "slots": options.slots,
        "jobs": options.jobs,
        "batch": BATCH,
        "settings": settings,
    }


def _check(supervisor: subprocess.Popen[bytes], begun: float) -> None:
    if supervisor.poll() is not None:
        raise BenchError(f"the supervisor ended by itself, with {supervisor.returncode}")
    if monotonic() - begun > PATIENCE:
        raise BenchError(f"the jobs were not drained within {PATIENCE:g} s")


def _drop(dsn: str, schema: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
