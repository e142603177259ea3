"""Somebody dies, hangs or vanishes: what it costs, and whom."""

from __future__ import annotations

import os
import signal
from time import monotonic

import pytest

from tests.system.host import Hosts, Jobs, alive
from tests.waiting import until


def test_a_job_that_hangs_in_c_code_is_killed_at_its_deadline(hosts: Hosts, jobs: Jobs) -> None:
    """One slot, one attempt, and a record that names the guilty line; siblings notice nothing."""
    host = hosts.start("one", "--slots", "3").ready()
    sibling = jobs.enqueue("wait_for", {"name": "sibling"})
    until((hosts.folder / "sibling").exists, what="the sibling")
    before = host.slots()
    hung = jobs.enqueue("hang", {"name": "hung"})
    dead = jobs.wait(hung, "dead")
    assert (dead["failure_class"], dead["attempt"], dead["crashes"]) == ("timeout", 1, 0)
    (attempt,) = jobs.attempts(hung)
    assert attempt["outcome"] == "timeout"
    assert "work.py" in attempt["stack"]
    assert "in hang" in attempt["stack"]
    assert (attempt["signal"], attempt["host"]) == ("SIGKILL", "one")
    until(lambda: len(host.slots()) == 3, what="the replacement")
    after = host.slots()
    changed = [slot for slot in before if before[slot] != after[slot]]
    assert changed == [attempt["slot"]]
    (hosts.folder / "sibling.go").touch()
    assert jobs.wait(sibling, "succeeded")["attempt"] == 1


@pytest.mark.parametrize("how", ["exit", "abort", "segfault"])
def test_a_job_that_kills_its_process_is_dead_after_three_deaths(
    hosts: Hosts, jobs: Jobs, how: str
) -> None:
    """A poison job does not run for ever, whatever its budget of attempts."""
    hosts.start("one", "--slots", "2").ready()
    job = jobs.enqueue("die", {"name": "poison", "how": how})
    dead = jobs.wait(job, "dead")
    assert (dead["attempt"], dead["crashes"], dead["failure_class"]) == (3, 3, "crash")
    assert len((hosts.folder / "poison").read_text().splitlines()) == 3
    reasons = {one["exit_reason"] for one in jobs.attempts(job)}
    words = {"exit": "exited with code 0", "abort": "SIGABRT", "segfault": "SIGSEGV"}
    assert all(words[how] in reason for reason in reasons), reasons


def test_a_slot_killed_in_the_middle_of_its_job(hosts: Hosts, jobs: Jobs) -> None:
    """kill -9 of one process: the job runs again, the others are the same processes as before."""
    host = hosts.start("one", "--slots", "3").ready()
    job = jobs.enqueue("wait_for", {"name": "victim"})
    pid = int(until(lambda: _marks(hosts, "victim"), what="the job")[0].split()[2])
    before = set(host.slots().values())
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(_marks(hosts, "victim")) == 2, what="the second attempt")
    (hosts.folder / "victim.go").touch()
    done = jobs.wait(job, "succeeded")
    assert (done["attempt"], done["crashes"]) == (2, 1)
    assert jobs.attempts(job)[0]["signal"] == "SIGKILL"
    assert before - {pid} <= set(host.slots().values())


def test_the_supervisor_killed_while_jobs_run(hosts: Hosts, jobs: Jobs) -> None:
    """kill -9 leaves no process; started again, it proves its earlier life dead and goes on."""
    host = hosts.start("one", "--slots", "3").ready()
    job = jobs.enqueue("wait_for", {"name": "orphan"})
    until(lambda: _marks(hosts, "orphan"), what="the job")
    pids = list(host.slots().values())
    host.kill()
    until(lambda: not alive(pids), within=10, what="its slots to be gone")
    begun = monotonic()
    again = hosts.start("one", "--slots", "3").ready()
    until(lambda: len(_marks(hosts, "orphan")) == 2, what="the second attempt")
    assert monotonic() - begun < 20  # far less than the lease
    assert again.said("earlier_sessions_dead")
    (hosts.folder / "orphan.go").touch()
    done = jobs.wait(job, "succeeded")
    assert (done["attempt"], done["crashes"]) == (2, 1)
    assert jobs.attempts(job)[0]["outcome"] == "lost"
    jobs.nothing_is_misplaced()


def test_a_host_that_does_not_come_back(hosts: Hosts, jobs: Jobs) -> None:
    """Its lease ends, another host's reaper ends its claims, and the jobs run there."""
    lost = hosts.start("lost", "--slots", "2", "--lease", "3s").ready()
    job = jobs.enqueue("wait_for", {"name": "moved"})
    until(lambda: _marks(hosts, "moved"), what="the job")
    hosts.start("other", "--slots", "2", "--lease", "3s").ready()
    lost.kill()
    until(lambda: len(_marks(hosts, "moved")) == 2, within=60, what="the second attempt")
    (hosts.folder / "moved.go").touch()
    done = jobs.wait(job, "succeeded")
    assert (done["attempt"], done["crashes"]) == (2, 1)
    (attempt,) = jobs.attempts(job)
    assert (attempt["outcome"], attempt["host"]) == ("lost", "lost")


def test_a_host_frozen_for_longer_than_its_lease(hosts: Hosts, jobs: Jobs) -> None:
    """It wakes up, finds that others have its job, kills its own run and writes nothing late."""
    frozen = hosts.start("frozen", "--slots", "2", "--lease", "3s").ready()
    job = jobs.enqueue("wait_for", {"name": "stolen"})
    until(lambda: _marks(hosts, "stolen"), what="the job")
    first = int(_marks(hosts, "stolen")[0].split()[2])
    hosts.start("other", "--slots", "2", "--lease", "3s").ready()
    frozen.send(signal.SIGSTOP)
    until(lambda: len(_marks(hosts, "stolen")) == 2, within=60, what="the second attempt")
    frozen.send(signal.SIGCONT)
    until(lambda: not alive([first]), what="the first run to be killed")
    (hosts.folder / "stolen.go").touch()
    done = jobs.wait(job, "succeeded")
    assert (done["attempt"], done["crashes"]) == (2, 1)
    assert [one["outcome"] for one in jobs.attempts(job)] == ["lost"]
    until(lambda: len(frozen.said("session_registered")) == 2, what="a new session")
    jobs.nothing_is_misplaced()


def _marks(hosts: Hosts, name: str) -> list[str]:
    file = hosts.folder / name
    return file.read_text().splitlines() if file.exists() else []
