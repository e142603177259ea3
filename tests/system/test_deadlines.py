"""Soft, then hard: what a deadline does to a job, and to nobody else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.system.host import Host, Hosts, Jobs, alive
from tests.waiting import until

FREEZER = Path("/sys/fs/cgroup/freezer")


def test_a_soft_timeout_is_swallowed_again_and_again(hosts: Hosts, jobs: Jobs) -> None:
    """It is raised again, ever more rarely; the hard deadline is the contract, with the stack."""
    host = hosts.start("one", "--slots", "1", app="rough").ready()
    job = jobs.enqueue("swallow", {"name": "swallower"})
    dead = jobs.wait(job, "dead")
    assert (dead["failure_class"], dead["attempt"], dead["crashes"]) == ("timeout", 1, 0)
    assert len((hosts.folder / "swallower").read_text().splitlines()) == 2  # at 0.2 s and 1.2 s
    (attempt,) = jobs.attempts(job)
    assert (attempt["outcome"], attempt["error_class"]) == ("timeout", "HardTimeout")
    assert "hard deadline of 1.5 s" in attempt["exit_reason"]
    assert "in swallow" in attempt["stack"]
    assert attempt["signal"] == "SIGKILL"
    assert 'jobctl_deadline_kills_total{job_type="swallow",kind="hard"} 1.0' in metrics(host)


def test_a_soft_timeout_is_let_through(hosts: Hosts, jobs: Jobs) -> None:
    """The handler tidies up, the slot lives on, and the stack says where it was."""
    host = hosts.start("one", "--slots", "1", app="rough").ready()
    slots = host.slots()
    job = jobs.enqueue("tidy_up", {"name": "tidied"})
    dead = jobs.wait(job, "dead")
    assert dead["failure_class"] == "timeout"
    (attempt,) = jobs.attempts(job)
    assert (attempt["outcome"], attempt["error_class"]) == ("timeout", "SoftTimeout")
    assert "in wait_for" in attempt["stack"]
    assert (hosts.folder / "tidied").exists()
    assert host.slots() == slots
    assert 'jobctl_deadline_kills_total{job_type="tidy_up",kind="soft"} 1.0' in metrics(host)


def test_a_soft_timeout_does_not_reach_c_code(hosts: Hosts, jobs: Jobs) -> None:
    """It is advisory; the hard deadline comes all the same, and the stack shows the C call."""
    hosts.start("one", "--slots", "1", app="rough").ready()
    job = jobs.enqueue("hang_in_c", {"name": "hung"})
    jobs.wait(job, "dead")
    (attempt,) = jobs.attempts(job)
    assert attempt["error_class"] == "HardTimeout"
    assert "in hang_in_c" in attempt["stack"]


@pytest.mark.parametrize("without", [None, "aim"])
def test_a_soft_timeout_comes_late(hosts: Hosts, jobs: Jobs, without: str | None) -> None:
    """The signal that was meant for one job arrives in the next: that one is not hit. With the aim
    taken out it is."""
    host = hosts.start("one", "--slots", "1", app="rough", without=without).ready()
    jobs.wait(jobs.enqueue("tidy_up", {"name": "meant"}), "dead")
    job = jobs.enqueue("unhurried", {"name": "next"})
    until((hosts.folder / "next").exists, what="the next job")
    (pid,) = host.slots().values()
    for _ in range(3 if without is None else 1):  # the first one that hits is caught
        os.kill(pid, signal.SIGUSR1)
        until(lambda: not pending(pid), what="the signal to be taken")
    (hosts.folder / "next.go").touch()
    done = jobs.wait(job, "succeeded")
    assert done["result"] == ("unhurt" if without is None else "hit")


@pytest.fixture
def frozen_group() -> Iterator[Path]:
    """A frozen control group: a process in it hears nothing, not even SIGKILL."""
    group = FREEZER / f"jobctl-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no process can be made unkillable here: {error}")
    try:
        (group / "freezer.state").write_text("FROZEN")
        yield group
    finally:
        (group / "freezer.state").write_text("THAWED")
        until(lambda: not (group / "cgroup.procs").read_text(), what="the group to be empty")
        group.rmdir()


@pytest.mark.parametrize(
    "without", [None, pytest.param("give up on unkillable", marks=pytest.mark.slow)]
)
def test_a_process_does_not_die(
    hosts: Hosts, jobs: Jobs, frozen_group: Path, without: str | None
) -> None:
    """Killed in vain, as one that hangs in the kernel: its attempt ends, another slot takes its
    place and works, the supervisor says so, and it is reaped when it dies after all."""
    host = hosts.start("one", "--slots", "1", app="rough", without=without).ready()
    job = jobs.enqueue("freeze", {"name": "frozen", "group": str(frozen_group)})
    until((hosts.folder / "frozen").exists, what="the job")
    pid = int((hosts.folder / "frozen").read_text().split()[2])
    if without is not None:
        began = monotonic()
        until(lambda: monotonic() - began > 9, within=20, what="the time that it takes otherwise")
        assert jobs.job(job)["state"] == "running"
        assert host.slots() == {}
        return
    dead = jobs.wait(job, "dead", within=30)
    assert dead["failure_class"] == "timeout"
    assert alive([pid])
    assert jobs.wait(jobs.enqueue("nothing"), "succeeded")
    (notice,) = [one for one in host.said("fleet_notice") if one["notice"] == "unkillable"]
    assert f"process {pid}" in notice["message"]
    (frozen_group / "freezer.state").write_text("THAWED")
    until(lambda: not Path(f"/proc/{pid}").exists(), what="it to be reaped")
    assert len(host.slots()) == 1


def test_without_the_guard_nothing_ends_it(hosts: Hosts, jobs: Jobs) -> None:
    """The negative control of the hard deadline."""
    hosts.start("one", "--slots", "1", app="rough", without="hard deadline").ready()
    job = jobs.enqueue("swallow", {"name": "swallower"})
    until((hosts.folder / "swallower").exists, what="the job")
    began = monotonic()
    until(lambda: monotonic() - began > 3, what="twice its deadline")
    assert jobs.job(job)["state"] == "running"


def metrics(host: Host) -> str:
    return host.get("/metrics")[1]


def pending(pid: int) -> bool:
    """Whether a signal waits to be taken by Python: the process has not come round to it."""
    status = Path(f"/proc/{pid}/status").read_text()
    masks = [
        line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))
    ]
    return any(int(mask, 16) for mask in masks)
