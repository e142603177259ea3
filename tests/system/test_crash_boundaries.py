"""Every boundary at which a job can die, in each order of its effect: how often the provider is
called, and how often the application's own row is written.

| it dies | mark_first | act_first |
| --- | --- | --- |
| before the claim, after it, in the handler before the effect | one call | one call |
| after the call, before anybody has said so | one call, never two | two calls, never none |
| after it was said; after the local commit; before the settle | one call | one call |
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests import claiming
from tests.system.host import Host, Hosts, Jobs
from tests.waiting import until

MODES = ("mark_first", "act_first")
STEPS = ("started", "acted", "said", "committed")
GHOST = 99
QUICK = ("--slots", "1", "--lease", "4s")


@pytest.fixture(autouse=True)
def _delivered(jobs: Jobs) -> Iterator[None]:
    """The application's table."""
    jobs.connection.execute("CREATE TABLE public.delivered (job bigint)")
    try:
        yield
    finally:
        jobs.connection.execute("DROP TABLE public.delivered")


def start(hosts: Hosts, name: str = "a") -> Host:
    return hosts.start(name, *QUICK, app="boundaries").ready()


def pass_all(folder: Path) -> None:
    for name in STEPS:
        (folder / f"{name}.go").touch()


def pid_at(folder: Path, step: str) -> int:
    """Who stands at this step, all before it having passed."""
    for name in STEPS[: STEPS.index(step)]:
        (folder / f"{name}.go").touch()
    here = folder / f"{step}.here"
    until(lambda: here.exists() and here.read_text(), within=60, what=f"step {step}")
    return int(here.read_text().split()[-1])


def calls(folder: Path) -> int:
    log = folder / "provider.acts"
    return len(log.read_text().splitlines()) if log.exists() else 0


def rows(jobs: Jobs) -> int:
    row = jobs.connection.execute("SELECT count(*) AS n FROM public.delivered").fetchone()
    assert row is not None
    return int(row["n"])


@contextmanager
def locked(dsn: str, job: int) -> Iterator[None]:
    """Somebody's open transaction has the job's row in hand: its end cannot be written."""
    with psycopg.connect(dsn) as somebody:
        somebody.execute("SELECT FROM jobctl.job WHERE id = %s FOR UPDATE", (job,))
        yield


@pytest.mark.parametrize("mode", MODES)
def test_before_the_claim(hosts: Hosts, jobs: Jobs, tmp_path: Path, mode: str) -> None:
    """The host dies before it has seen the job; another runs it."""
    pass_all(tmp_path)
    host = start(hosts)
    host.send(signal.SIGSTOP)
    job = jobs.enqueue("deliver", {"mode": mode})
    host.kill()
    start(hosts, "b")
    assert jobs.wait(job, "succeeded", within=60)["attempt"] == 1
    assert (calls(tmp_path), rows(jobs)) == (1, 1)


@pytest.mark.slow  # it waits for a lease to be over
@pytest.mark.parametrize("mode", MODES)
def test_after_the_claim(hosts: Hosts, jobs: Jobs, tmp_path: Path, mode: str) -> None:
    """A host has claimed it and is never heard of again: its lease ends, and another runs it."""
    pass_all(tmp_path)
    job = jobs.enqueue("deliver", {"mode": mode})
    with claiming.connect(hosts.dsn) as ghost:
        claiming.register(ghost, GHOST, lease=1.0, host="ghost")
        assert [one.job_id for one in claiming.claim(ghost, GHOST)] == [job]
    start(hosts)
    row = jobs.wait(job, "succeeded", within=90)
    assert (row["attempt"], row["crashes"]) == (2, 1)
    assert [one["outcome"] for one in jobs.attempts(job)] == ["lost"]
    assert (calls(tmp_path), rows(jobs)) == (1, 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("step", "called"),
    [
        ("started", {"mark_first": 1, "act_first": 1}),
        ("acted", {"mark_first": 1, "act_first": 2}),
        ("said", {"mark_first": 1, "act_first": 1}),
        ("committed", {"mark_first": 1, "act_first": 1}),
    ],
    ids=["mid-handler", "after the remote effect", "before the commit", "after the local commit"],
)
def test_in_the_handler(
    hosts: Hosts, jobs: Jobs, tmp_path: Path, step: str, called: dict[str, int], mode: str
) -> None:
    """The process is killed with -9 at this line, and the job is tried again unless it is done."""
    start(hosts)
    job = jobs.enqueue("deliver", {"mode": mode})
    os.kill(pid_at(tmp_path, step), signal.SIGKILL)
    pass_all(tmp_path)
    row = jobs.wait(job, "succeeded", within=60)
    assert row["attempt"] == (1 if step == "committed" else 2)
    assert (calls(tmp_path), rows(jobs)) == (called[mode], 1)


@pytest.mark.parametrize("mode", MODES)
def test_before_the_settle(hosts: Hosts, jobs: Jobs, tmp_path: Path, mode: str) -> None:
    """The handler has returned and nobody could write it down before its host died: it runs again,
    and knows that the provider was called."""
    host = start(hosts)
    job = jobs.enqueue("deliver", {"mode": mode, "commit": False})
    pid_at(tmp_path, "said")
    with locked(hosts.dsn, job):
        pass_all(tmp_path)
        until(lambda: host.state()["unwritten"] == 1, within=30, what="the end that waits")
        host.kill()
        # With its connections: a statement that waits for the lock would write the end for it.
        jobs.connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE application_name ~ '^jobctl .* settle$'"
        )
    start(hosts)
    jobs.wait(job, "succeeded", within=60)
    assert calls(tmp_path) == 1
    lines = (tmp_path / "said.here").read_text().splitlines()
    assert len(lines) == 2  # it did run twice
