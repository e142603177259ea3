"""What a job leaves in its slot: the next one does not find it, and it is said."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from tests.system.host import Hosts, Jobs, alive
from tests.waiting import until

RESTORED = {
    "cwd": "the working directory '/'",
    "no cwd": "the working directory",
    "umask": "the umask 000",
    "environment": "environment variables: JOBCTL_TEST_WITHOUT, LEFT_BEHIND",
    "handlers": "signal handlers: SIGCHLD, SIGTERM",
    "timer": "a timer",
    "mask": "blocked signals",
    "socket timeout": "a default time-out of sockets",
    "streams": "another sys.stdout or sys.stderr",
    "recursion": "another recursion limit",
    "failing": "the working directory '/'",
}
REPLACED = {
    "thread": "1 threads that still run: forgotten",
    "process": "1 processes that still run",
    "descriptors": "open descriptors",
    "limits": "other limits of the process",
    "output": "another file in the place of its output",
}


def test_a_job_leaves_its_slot_changed(hosts: Hosts, jobs: Jobs) -> None:
    """Folder, umask, environment, signals, timers, streams: put back in the same process, and said
    in the job's log and the supervisor's, without the values."""
    host = hosts.start("one", "--slots", "1", app="rough").ready()
    before = found(jobs)
    for what in RESTORED:
        leave(jobs, what)
        after = found(jobs)
        assert after == before, what
    said = " ".join(one["message"] for one in host.said("output"))
    for what, words in RESTORED.items():
        assert words in said, what
    assert "hunter2" not in host.log.read_text()
    (first,) = host.said("job_left")  # of each type only now and then
    assert first["type"] == "leave" and first["slot"] == 1
    assert "which was put back" in first["message"]


def test_a_job_leaves_what_cannot_be_put_back(hosts: Hosts, jobs: Jobs) -> None:
    """Threads, processes, descriptors, limits, a closed output: the slot is replaced before the
    next job, the process that was left behind is gone, and no attempt is spent on it."""
    host = hosts.start("one", "--slots", "1", app="rough").ready()
    before = found(jobs)
    for what in REPLACED:
        left_in = leave(jobs, what)
        after = found(jobs)
        assert after.pop("pid") not in (before["pid"], left_in), what
        assert after == {name: value for name, value in before.items() if name != "pid"}, what
        assert not alive([left_in]), what
    assert not alive([int((hosts.folder / "process").read_text())])
    said = " ".join(one["message"] for one in [*host.said("output"), *host.said("job_left")])
    for what in ("thread", "process", "descriptors", "limits"):  # the last has no output any more
        assert REPLACED[what] in said, what
    assert host.said("slot_died") == []
    assert jobs.connection.execute("SELECT * FROM jobctl.attempts").fetchall() == []


def test_a_process_slips_away_from_its_slot(hosts: Hosts, jobs: Jobs) -> None:
    """A daemon that outlives its job is found by the supervisor; it ends with its slot, between two
    jobs, and it is said."""
    host = hosts.start("one", "--slots", "1", app="rough").ready()
    left_in = jobs.wait(jobs.enqueue("leave_a_daemon", {"name": "daemon"}), "succeeded")["result"]
    daemon = int((hosts.folder / "daemon").read_text())
    until(lambda: not alive([daemon]), what="the daemon's end")
    until(lambda: host.slots() and left_in not in host.slots().values(), what="the replacement")
    (notice,) = host.said("fleet_notice")
    assert notice["notice"] == "outlived" and str(daemon) in notice["message"]
    assert host.said("slot_died") == []


def test_without_the_sweep_it_lives_on(hosts: Hosts, jobs: Jobs) -> None:
    """The negative control of the story above."""
    host = hosts.start("one", "--slots", "1", app="rough", without="leftovers").ready()
    job = jobs.enqueue("leave_a_daemon", {"name": "daemon"})
    left_in = jobs.wait(job, "succeeded")["result"]
    daemon = int((hosts.folder / "daemon").read_text())
    later = monotonic() + 4  # some four sweeps
    until(lambda: monotonic() > later, what="several sweeps")
    assert alive([daemon])
    assert left_in in host.slots().values()


def test_an_app_keeps_its_clients(hosts: Hosts, jobs: Jobs) -> None:
    """An event loop, a pool's workers and daemon threads stay with their slot: nobody is replaced
    for them, until they pile up."""
    host = hosts.start("one", "--slots", "1", app="rough").ready()
    pids = [jobs.wait(jobs.enqueue("keep_clients"), "succeeded")["result"] for _ in range(20)]
    assert len(set(pids)) == 1
    assert host.said("job_left") == []
    many = [jobs.enqueue("keep_clients") for _ in range(80)]
    pids = [jobs.wait(job, "succeeded")["result"] for job in many]
    assert len(set(pids)) > 1
    (left,) = host.said("job_left")
    assert "threads in all" in left["left"]


@pytest.mark.parametrize("what", ["cwd", "process"])
def test_without_the_guard_the_next_job_finds_it(hosts: Hosts, jobs: Jobs, what: str) -> None:
    """The negative control of the stories above."""
    hosts.start("one", "--slots", "1", app="rough", without="hygiene").ready()
    before = found(jobs)
    leave(jobs, what)
    assert found(jobs) != before


def leave(jobs: Jobs, what: str) -> int:
    job = jobs.enqueue("leave", {"what": what})
    state = "dead" if what == "failing" else "succeeded"
    return int(jobs.wait(job, state)["result"] or 0)


def found(jobs: Jobs) -> dict[str, Any]:
    result = jobs.wait(jobs.enqueue("look_around"), "succeeded")["result"]
    assert isinstance(result, dict)
    return result
