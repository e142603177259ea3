"""Drains and stops: nothing is lost, nothing is spent, nothing is left behind."""

from __future__ import annotations

import signal

import pytest

from tests.system.host import Host, Hosts, Jobs, alive
from tests.waiting import until


def test_sigterm_lets_what_runs_finish(hosts: Hosts, jobs: Jobs) -> None:
    """Claims stop at once; the running job ends by itself; exit 0; no session, no process left."""
    host = hosts.start("one", "--slots", "2").ready()
    job = jobs.enqueue("wait_for", {"name": "patient"})
    until((hosts.folder / "patient").exists, what="the job")
    pids = [host.pid, *host.slots().values()]
    host.send(signal.SIGTERM)
    until(lambda: host.said("stopping"), what="the drain")
    later = jobs.enqueue("add", {"a": 1, "b": 1})
    (hosts.folder / "patient.go").touch()
    assert host.process.wait(timeout=30) == 0
    assert jobs.job(job)["state"] == "succeeded"
    assert jobs.job(later)["state"] == "queued"
    assert alive(pids) == []
    assert jobs.connection.execute("SELECT * FROM jobctl.session").fetchall() == []
    jobs.nothing_is_misplaced()


@pytest.mark.parametrize("how", ["patience", "two presses of ctrl-c", "quit"])
def test_what_does_not_finish_is_interrupted_and_spends_no_attempt(
    hosts: Hosts, jobs: Jobs, how: str
) -> None:
    """The job goes back to the front, as if it had not been started; exit 5 says so."""
    patience = "1s" if how == "patience" else "5m"
    host = hosts.start("one", "--slots", "2", "--drain-timeout", patience).ready()
    job = jobs.enqueue("wait_for", {"name": "endless"})
    until((hosts.folder / "endless").exists, what="the job")
    match how:
        case "patience":
            host.send(signal.SIGTERM)
        case "quit":
            host.send(signal.SIGQUIT)
        case _:
            host.send(signal.SIGINT)
            until(lambda: host.said("stopping"), what="the drain")
            until(lambda: _press_again(host), within=10, what="the second press")
    assert host.process.wait(timeout=30) == 5
    after = jobs.job(job)
    assert (after["state"], after["attempt"], after["crashes"]) == ("queued", 0, 0)
    (attempt,) = jobs.attempts(job)
    assert attempt["outcome"] == "interrupted"
    assert "did not end in time for a stop" in attempt["exit_reason"]
    (stopped,) = host.said("stopped")
    assert (stopped["interrupted"], stopped["queued_again"]) == (1, 1)
    assert len(host.said("stopping_sooner")) == (how == "two presses of ctrl-c")
    jobs.nothing_is_misplaced()


def test_a_drained_supervisor_stays_and_can_be_undrained(hosts: Hosts, jobs: Jobs) -> None:
    """`jobctl drain` before a deploy, and the way back."""
    host = hosts.start("one", "--slots", "2").ready()
    host.ask("drain")
    job = jobs.enqueue("add", {"a": 1, "b": 1})
    until(lambda: host.state()["busy"] == 0, what="nothing to run")
    assert jobs.job(job)["state"] == "queued"
    host.ask("undrain")
    jobs.wait(job, "succeeded")


def _press_again(host: Host) -> bool:
    """A second press counts half a second after the first."""
    if host.process.poll() is None:
        host.send(signal.SIGINT)
    return host.process.poll() is not None
