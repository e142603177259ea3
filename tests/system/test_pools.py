"""Pools on a real host: long jobs have slots of their own, and never hold up the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.host import Host, Hosts, Jobs
from tests.waiting import until

POOLS = """
[[pool]]
name = "reports"
queues = ["reports"]
slots = 1
memory = "512MiB"
nice = 5
cpus = "{cpu}"
"""


OURS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def host(hosts: Hosts, tmp_path: Path) -> Host:
    """Two slots for everything, one for reports."""
    file = tmp_path / "jobctl.toml"
    file.write_text(POOLS.format(cpu=OURS[-1]))
    return hosts.start("one", "--slots", "2", "--config", str(file)).ready()


def test_long_reports_do_not_hold_up_mail(host: Host, hosts: Hosts, jobs: Jobs) -> None:
    """More reports than there are slots: one runs, the rest wait, and everything else goes on."""
    reports = [jobs.enqueue("wait_for", {"name": "report"}, queue="reports") for _ in range(4)]
    until(lambda: (hosts.folder / "report").exists(), what="the first report")
    for _ in range(20):
        jobs.wait(jobs.enqueue("add", {"a": 1, "b": 2}), "succeeded", within=60)
    one_runs = ["queued", "queued", "queued", "running"]
    until(lambda: sorted(jobs.job(job)["state"] for job in reports) == one_runs, what="one to run")
    (hosts.folder / "report.go").touch()
    for job in reports:
        jobs.wait(job, "succeeded")
    pids = {line.split()[2] for line in (hosts.folder / "report").read_text().splitlines()}
    assert len(pids) == 1  # the one slot of the pool ran them all, and is blamed for nothing
    assert host.said("job_left") == []
    jobs.nothing_is_misplaced()


def test_slots_of_a_pool_run_nothing_else(host: Host, hosts: Hosts, jobs: Jobs) -> None:
    """The default pool is busy, and the slot for reports stays free for reports."""
    for _ in range(4):
        jobs.enqueue("wait_for", {"name": "busy"})
    until(lambda: host.state()["busy"] == 2, what="both slots of the default pool")
    assert host.state()["busy"] == 2
    report = jobs.enqueue("add", {"a": 1, "b": 2}, queue="reports")
    jobs.wait(report, "succeeded")
    (hosts.folder / "busy.go").touch()


def test_a_pool_stands_back_and_is_seen(host: Host, jobs: Jobs) -> None:
    """Its slots have its niceness and its processors, and metrics and status name it."""
    slots = {one["slot"]: one for one in host.state()["slots"]}
    assert {one["pool"] for one in slots.values()} == {"default", "reports"}
    until(lambda: len(host.slots()) == 3, what="all slots")
    nice = {
        slots[number]["pool"]: os.getpriority(os.PRIO_PROCESS, pid)
        for number, pid in host.slots().items()
    }
    assert nice["reports"] == nice["default"] + 5
    cpus = {
        slots[number]["pool"]: os.sched_getaffinity(pid) for number, pid in host.slots().items()
    }
    assert cpus == {"default": set(OURS), "reports": {OURS[-1]}}
    assert 'jobctl_saturation_ratio{pool="reports"} 0.0' in host.get("/metrics")[1]


def test_a_pool_asks_for_processors_that_are_not_here(hosts: Hosts, tmp_path: Path) -> None:
    """Said before anything starts, and no restart would mend it."""
    file = tmp_path / "jobctl.toml"
    file.write_text(POOLS.format(cpu="0,9000"))
    host = hosts.start("one", "--config", str(file))
    assert host.process.wait(30) == 78
    assert "The pool reports asks for the processors 9000; here are" in host.log.read_text()
