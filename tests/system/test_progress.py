"""Progress: durable while it runs, with the end of the attempt whatever ends it, and shown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.system.host import PROGRAM, Hosts, Jobs
from tests.waiting import until

ALL = {"phase": "counting", "done": 1000, "total": 1000}


def _progress(row: dict[str, Any]) -> dict[str, Any] | None:
    """Without its time, which is a time."""
    if row["progress"] is None:
        return None
    words = dict(row["progress"])
    assert words.pop("updated_at").endswith("Z")
    return words


def _command(dsn: str, *words: str) -> str:
    done = subprocess.run(
        [*PROGRAM, *words], env={**os.environ, "JOBCTL_DSN": dsn}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_seen_while_it_runs(hosts: Hosts, jobs: Jobs, tmp_path: Path, database: str) -> None:
    """In the row and on the terminal; a thousand calls are one or two statements."""
    host = hosts.start("a", "--slots", "2", app="promises").ready()
    job = jobs.enqueue("count_up", {"name": "c", "total": 1000})
    until(lambda: _progress(jobs.job(job)) == ALL, within=60, what="its progress")
    assert jobs.job(job)["state"] == "running"
    shown = _command(database, "jobs", "show", str(job))
    assert "counting 1000 of 1000 (100 %)" in shown
    assert "counting 1000 of 1000" in _command(database, "status")
    facts = json.loads(_command(database, "status", "--json"))
    assert [row["id"] for row in facts["progress"]] == [job]
    (tmp_path / "c.go").touch()
    jobs.wait(job, "succeeded")
    assert _progress(jobs.job(job)) == ALL
    _, page = host.get("/metrics")
    statements = [
        float(line.split()[-1])
        for line in page.splitlines()
        if line.startswith('jobctl_sql_seconds_count{statement="note_progress"}')
    ]
    assert statements and statements[0] <= 3


@pytest.mark.parametrize("then", ["raise", "exit", "kill"])
def test_kept_whatever_ends_the_attempt(
    hosts: Hosts, jobs: Jobs, tmp_path: Path, database: str, then: str
) -> None:
    """Of an attempt that lasted no second: with its record, and with the job over its retries."""
    hosts.start("a", "--slots", "1", app="promises").ready()
    job = jobs.enqueue("count_up", {"name": "c", "total": 1000, "then": then})
    if then == "kill":
        mark = tmp_path / "c.here"
        until(lambda: mark.exists() and mark.read_text(), within=60, what="it to have counted")
        os.kill(int(mark.read_text().split()[0]), signal.SIGKILL)
    (tmp_path / "c.go").touch()
    row = jobs.wait(job, "succeeded", within=60)
    assert row["attempt"] == 2
    assert _progress(row) == ALL  # the second attempt said nothing
    (attempt,) = jobs.attempts(job)
    assert _progress(attempt) == ALL
    shown = _command(database, "jobs", "show", str(job))
    assert "it had come to: counting 1000 of 1000 (100 %)" in shown


def test_phases_that_cannot_be_stored(hosts: Hosts, jobs: Jobs) -> None:
    """They are made storable; and a quick success keeps what it said."""
    hosts.start("a", "--slots", "1", app="promises").ready()
    for phase, kept in (
        ("a\0b", "a\u2400b"),
        ("caf\u00e9", "caf\u00e9"),
        ("x" * 999, "x" * 199 + "…"),
    ):
        job = jobs.enqueue("say_quickly", {"phase": phase.replace("\0", "NUL")})
        row = jobs.wait(job, "succeeded")
        assert _progress(row) == {"phase": kept, "done": 1}
