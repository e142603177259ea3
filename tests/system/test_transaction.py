"""Business writes and the success of a job in one commit, with kills at every step of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.host import Host, Hosts, Jobs
from tests.waiting import until


@pytest.fixture(autouse=True)
def _paid(jobs: Jobs) -> Iterator[None]:
    """A table of the application's own, in its own schema."""
    jobs.connection.execute("CREATE TABLE public.paid (job bigint, attempt int)")
    try:
        yield
    finally:
        jobs.connection.execute("DROP TABLE public.paid")


def _go(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.go").touch()


def _here(folder: Path, name: str, times: int = 1) -> int:
    """Waits until the handler has come to this step so often; the pid of the last that did."""
    mark = folder / f"{name}.here"
    until(
        lambda: mark.exists() and len(mark.read_text().splitlines()) >= times,
        within=30,
        what=f"step {name}",
    )
    return int(mark.read_text().splitlines()[-1])


def _paid_rows(jobs: Jobs) -> list[tuple[int, int]]:
    return [
        (row["job"], row["attempt"])
        for row in jobs.connection.execute("SELECT job, attempt FROM public.paid").fetchall()
    ]


def _finished(host: Host) -> dict[str, float]:
    """What /metrics says of jobs and attempts of the type `pay`, by state and outcome."""
    _, page = host.get("/metrics")
    found = {}
    for line in page.splitlines():
        if 'job_type="pay"' not in line:
            continue
        if line.startswith("jobctl_jobs_finished_total"):
            found[line.partition('state="')[2].split('"')[0]] = float(line.split()[-1])
        elif line.startswith("jobctl_attempts_total"):
            outcome = line.partition('outcome="')[2].split('"')[0]
            found[f"attempt {outcome}"] = float(line.split()[-1])
    return {name: value for name, value in found.items() if value}


def test_committed_with_the_success(hosts: Hosts, jobs: Jobs, tmp_path: Path) -> None:
    """The row, the state and the result are there at once, before the handler has returned."""
    hosts.start("a", "--slots", "1", app="promises").ready()
    _go(tmp_path, "p.written")
    job = jobs.enqueue("pay", {"name": "p"})
    _here(tmp_path, "p.committed")
    row = jobs.job(job)
    assert (row["state"], row["result"], row["attempt"]) == ("succeeded", {"paid": "p"}, 1)
    assert _paid_rows(jobs) == [(job, 1)]
    _go(tmp_path, "p.committed")
    jobs.nothing_is_misplaced()


@pytest.mark.parametrize("then", ["raise", "hang", "exit", "return something", "enter again"])
def test_what_comes_after_the_commit_changes_nothing(
    hosts: Hosts, jobs: Jobs, tmp_path: Path, then: str
) -> None:
    """It raises, hangs until its deadline, dies: the job has succeeded, once, in metrics too."""
    host = hosts.start("a", "--slots", "1", app="promises").ready()
    _go(tmp_path, "p.written", "p.committed")
    job = jobs.enqueue("pay", {"name": "p", "then": then}, timeout="3s")
    jobs.wait(job, "succeeded")
    until(lambda: len(_finished(host)) > 1, within=30, what="it to be counted")
    assert _finished(host) == {"succeeded": 1, "attempt succeeded": 1}
    assert _paid_rows(jobs) == [(job, 1)]
    assert jobs.job(job)["result"] == {"paid": "p"}
    assert jobs.attempts(job) == []
    if then in ("raise", "hang", "exit", "enter again"):
        (said,) = host.said("job_had_succeeded")
        assert said["job"] == job
    jobs.nothing_is_misplaced()


def test_killed_before_the_commit(hosts: Hosts, jobs: Jobs, tmp_path: Path) -> None:
    """Nothing of it stays; the next attempt writes it once."""
    hosts.start("a", "--slots", "1", app="promises").ready()
    job = jobs.enqueue("pay", {"name": "p"})
    os.kill(_here(tmp_path, "p.written"), signal.SIGKILL)
    _go(tmp_path, "p.written", "p.committed")
    assert jobs.wait(job, "succeeded")["attempt"] == 2
    assert _paid_rows(jobs) == [(job, 2)]


def test_killed_right_after_the_commit(hosts: Hosts, jobs: Jobs, tmp_path: Path) -> None:
    """The supervisor learns from the database what the dead process could not say."""
    host = hosts.start("a", "--slots", "1", app="promises").ready()
    _go(tmp_path, "p.written")
    job = jobs.enqueue("pay", {"name": "p"})
    os.kill(_here(tmp_path, "p.committed"), signal.SIGKILL)
    until(lambda: len(_finished(host)) > 1, within=30, what="it to be counted")
    assert _finished(host) == {"succeeded": 1, "attempt succeeded": 1}
    assert jobs.job(job)["state"] == "succeeded"
    assert _paid_rows(jobs) == [(job, 1)]
    assert jobs.attempts(job) == []


def test_supervisor_killed_right_after_the_commit(hosts: Hosts, jobs: Jobs, tmp_path: Path) -> None:
    """Nobody is left to say anything: the job has succeeded, and its next life finds it so."""
    host = hosts.start("a", "--slots", "1", app="promises").ready()
    _go(tmp_path, "p.written")
    job = jobs.enqueue("pay", {"name": "p"})
    _here(tmp_path, "p.committed")
    host.kill()
    hosts.start("a", "--slots", "1", app="promises").ready()
    _go(tmp_path, "q.written", "q.committed")
    jobs.wait(jobs.enqueue("pay", {"name": "q"}), "succeeded")
    assert jobs.job(job)["state"] == "succeeded"
    assert jobs.job(job)["attempt"] == 1
    jobs.nothing_is_misplaced()


@pytest.mark.slow  # it waits for a lease to be over
def test_the_claim_was_lost(hosts: Hosts, jobs: Jobs, tmp_path: Path) -> None:
    """A stopped host wakes up when its job has long run elsewhere: its commit does not happen."""
    first = hosts.start("a", "--slots", "1", "--lease", "2s", app="promises").ready()
    job = jobs.enqueue("pay", {"name": "p"})
    slot = _here(tmp_path, "p.written")
    first.send(signal.SIGSTOP)
    os.kill(slot, signal.SIGSTOP)
    try:
        second = hosts.start("b", "--slots", "1", "--lease", "2s", app="promises").ready()
        _here(tmp_path, "p.written", times=2)  # it runs there, while the first holds its row open
        os.kill(slot, signal.SIGCONT)
        _go(tmp_path, "p.written", "p.committed")
        assert jobs.wait(job, "succeeded")["attempt"] == 2
    finally:
        os.kill(slot, signal.SIGCONT)
        first.send(signal.SIGCONT)
    assert _paid_rows(jobs) == [(job, 2)]
    assert second.stop() == 0


def test_rolled_back_by_the_handler(hosts: Hosts, jobs: Jobs) -> None:
    """What it raises inside undoes the transaction, not the job."""
    hosts.start("a", "--slots", "1", app="promises").ready()
    row = jobs.wait(jobs.enqueue("pay_and_think_again"), "succeeded")
    assert row["result"] == "nothing was paid"
    assert _paid_rows(jobs) == []


def test_in_a_coroutine(hosts: Hosts, jobs: Jobs) -> None:
    """The same with `async with`."""
    hosts.start("a", "--slots", "1", app="promises").ready()
    job = jobs.enqueue("pay_async")
    assert jobs.wait(job, "succeeded")["result"] == {"paid": "async"}
    assert _paid_rows(jobs) == [(job, 1)]
