"""`jobctl run` from nothing: what a laptop needs is the command, and what it says is enough."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobctl.store.embedded import EmbeddedPostgres
from tests.waiting import until


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with a module `greetings`."""
    (tmp_path / "greetings.py").write_text(
        "import jobctl\n\n\n@jobctl.job()\ndef greet(ctx: jobctl.Context, name: str)"
        " -> dict[str, str]:\n    return {'said': f'hello {name}'}\n"
    )
    return tmp_path


@pytest.fixture
def embedded(server_roots: Path) -> Iterator[EmbeddedPostgres]:
    """A server that does not exist yet."""
    server = EmbeddedPostgres(server_roots / "run")
    yield server
    server.destroy()


def _jobctl(folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "jobctl", *words], cwd=folder, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={
            **os.environ, "PYTHONPATH": str(folder), "JOBCTL_RUNTIME_DIR": str(folder / "run"),
            "JOBCTL_METRICS_LISTEN": "off", **environment,
        },
    )  # fmt: skip


def test_a_laptop_with_nothing_set(app: Path, embedded: EmbeddedPostgres) -> None:
    """The embedded PostgreSQL is started, migrated and named; a job runs; SIGTERM ends it well."""
    where = {"JOBCTL_STATE_DIR": str(embedded.root)}
    running = _jobctl(app, "run", "--app", "greetings", **where)
    try:
        assert running.stderr is not None
        said = [running.stderr.readline() for _ in range(3)]
        assert str(embedded.root) in said[0]
        assert "was started" in said[0]
        assert "jobctl db stop" in said[0]
        assert embedded.dsn().split("?")[0] in said[2]
        enqueued = _jobctl(app, "enqueue", "greet", '{"name": "ann"}', **where)
        job_id = enqueued.communicate(timeout=30)[0].strip()
        waited = _jobctl(app, "jobs", "wait", job_id, "--timeout", "30s", "--json", **where)
        assert '"said": "hello ann"' in waited.communicate(timeout=60)[0]
        assert waited.returncode == 0
        drained = _jobctl(app, "drain", "--wait", "--timeout", "30s", **where)
        assert "drained" in drained.communicate(timeout=60)[0]
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
        assert embedded.pid() is not None, "it outlives whoever started it"
    finally:
        running.kill()
        running.communicate()


def test_a_busy_port_says_which_and_what_to_do(app: Path, database: str) -> None:
    """1, so that a service manager tries again: the one before may still be leaving."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        running = _jobctl(
            app, "run", "--app", "greetings", "--metrics-listen", address, "--dsn", database
        )
        said = running.communicate(timeout=60)[1]
    assert running.returncode == 1
    assert f"cannot be served on {address}" in said
    assert "metrics_listen" in said
    assert "Traceback" not in said


def test_drain_and_exit_ends_a_supervisor(app: Path, database: str) -> None:
    """From the command line, without a signal; its socket is gone afterwards."""
    running = _jobctl(app, "run", "--app", "greetings", "--dsn", database)
    try:
        until(lambda: list((app / "run").glob("*.sock")), within=30, what="the control socket")
        drained = _jobctl(app, "drain", "--exit", "--wait", "--timeout", "60s")
        drained.communicate(timeout=90)
        assert drained.returncode == 0
        assert running.wait(30) == 0
        assert list((app / "run").iterdir()) == []
    finally:
        running.kill()
        running.communicate()
