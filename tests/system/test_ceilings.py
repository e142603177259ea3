"""Memory and CPU: who takes too much pays for it alone, and the record says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.control_groups import group_of_ours, joining
from tests.system.host import Hosts, Jobs
from tests.waiting import until


def test_a_job_eats_more_memory_than_its_type_may(hosts: Hosts, jobs: Jobs) -> None:
    """It is killed with verdict and stack, dead after its crashes; its sibling notices nothing."""
    host = hosts.start("one", "--slots", "2", app="rough").ready()
    sibling = jobs.enqueue("hold", {"name": "sibling"})
    until((hosts.folder / "sibling").exists, what="the sibling")
    job = jobs.enqueue("eat", {"name": "eater"})
    dead = jobs.wait(job, "dead")
    assert (dead["failure_class"], dead["attempt"], dead["crashes"]) == ("memory", 2, 2)
    assert len((hosts.folder / "eater").read_text().splitlines()) == 2
    for attempt in jobs.attempts(job):
        assert attempt["outcome"] == "crashed"
        assert "and its type may hold 300 MiB" in attempt["exit_reason"]
        assert attempt["peak_memory_bytes"] > 300 * 2**20
        assert "in eat" in attempt["stack"]
        assert attempt["signal"] == "SIGKILL"
    (hosts.folder / "sibling.go").touch()
    assert jobs.wait(sibling, "succeeded")["attempt"] == 1
    assert 'reason="memory"} 2.0' in host.get("/metrics")[1]
    (columns,) = jobs.connection.execute(
        "SELECT memory_bytes, cpu_seconds FROM jobctl.job_type WHERE name IN ('eat')"
    ).fetchall()
    assert columns == {"memory_bytes": 300 * 2**20, "cpu_seconds": None}


def test_a_job_burns_more_cpu_than_its_type_may(hosts: Hosts, jobs: Jobs) -> None:
    """That is a time-out, long before the hard deadline of its hours."""
    hosts.start("one", "--slots", "1", app="rough").ready()
    job = jobs.enqueue("burn")
    dead = jobs.wait(job, "dead")
    assert (dead["failure_class"], dead["attempt"], dead["crashes"]) == ("timeout", 1, 0)
    (attempt,) = jobs.attempts(job)
    assert attempt["outcome"] == "timeout"
    assert "too much CPU time" in attempt["exit_reason"]
    assert 0.5 <= attempt["cpu_seconds"] < 3
    assert "in burn" in attempt["stack"]


def test_without_the_guard_it_eats_on(hosts: Hosts, jobs: Jobs) -> None:
    """The negative control of the two stories above."""
    host = hosts.start("one", "--slots", "1", app="rough", without="ceilings").ready()
    job = jobs.enqueue("eat", {"name": "eater"})
    until((hosts.folder / "eater").exists, what="the job")
    (pid,) = host.slots().values()
    until(lambda: resident(pid) > 500 * 2**20, what="half a gibibyte")
    assert jobs.job(job)["state"] == "running"


def test_a_slot_has_grown(hosts: Hosts, jobs: Jobs) -> None:
    """A leak costs no job anything: the process is replaced between two of them, and it is said."""
    host = hosts.start("one", "--slots", "1", "--max-rss-per-slot", "200MiB", app="rough").ready()
    first = jobs.wait(jobs.enqueue("leak", {"mebibytes": 10}), "succeeded")["result"]
    again = jobs.wait(jobs.enqueue("leak", {"mebibytes": 250}), "succeeded")["result"]
    assert first == again
    until(lambda: host.said("fleet_notice"), what="the notice")
    (notice,) = host.said("fleet_notice")
    assert notice["notice"] == "too_large"
    assert "more than 200 MiB" in notice["message"]
    until(lambda: first not in host.slots().values() and host.slots(), what="the replacement")
    assert jobs.wait(jobs.enqueue("leak", {"mebibytes": 1}), "succeeded")["result"] != first
    assert host.said("slot_died") == []


def test_without_the_guard_it_stays_large(hosts: Hosts, jobs: Jobs) -> None:
    """The negative control of the story above."""
    large = ("--slots", "1", "--max-rss-per-slot", "200MiB")
    host = hosts.start("one", *large, app="rough", without="recycle large").ready()
    first = jobs.wait(jobs.enqueue("leak", {"mebibytes": 250}), "succeeded")["result"]
    later = monotonic() + 5  # two looks and some
    until(lambda: monotonic() > later, what="several looks")
    assert list(host.slots().values()) == [first]


def test_the_kernel_picks_the_slot(hosts: Hosts, jobs: Jobs) -> None:
    """When the machine runs out of memory, a slot stands before its supervisor."""
    host = hosts.start("one", "--slots", "1", app="rough").ready()
    own = int(Path(f"/proc/{host.pid}/oom_score_adj").read_text())
    slots = jobs.wait(jobs.enqueue("oom_score"), "succeeded")["result"]
    assert slots == min(own + 300, 1000)
    assert slots > own or own == 1000


def test_without_the_guard_it_might_pick_the_supervisor(hosts: Hosts, jobs: Jobs) -> None:
    """The negative control of the story above."""
    host = hosts.start("one", "--slots", "1", app="rough", without="stand aside").ready()
    own = int(Path(f"/proc/{host.pid}/oom_score_adj").read_text())
    assert jobs.wait(jobs.enqueue("oom_score"), "succeeded")["result"] == own


@pytest.fixture
def narrow() -> Iterator[Path]:
    """A control group in which there are 400 MiB of memory for a host and all that it runs."""
    with group_of_ours("memory") as group:
        (group / "memory.limit_in_bytes").write_text(str(400 * 2**20))
        yield group


def test_the_kernel_kills_a_job_for_memory(hosts: Hosts, jobs: Jobs, narrow: Path) -> None:
    """For real: the out-of-memory killer takes the slot that devours it, not the supervisor, not
    the template and not the sibling; the record says who it was, and the slot is replaced."""
    host = hosts.start("one", "--slots", "2", app="rough", prefix=joining(narrow)).ready()
    sibling = jobs.enqueue("hold", {"name": "sibling"})
    until((hosts.folder / "sibling").exists, what="the sibling")
    (other,) = [one["pid"] for one in host.state()["slots"] if one["job"] == sibling]
    job = jobs.enqueue("devour", {"name": "devourer"})
    dead = jobs.wait(job, "dead", within=60)
    assert (dead["failure_class"], dead["attempt"], dead["crashes"]) == ("memory", 2, 2)
    for attempt in jobs.attempts(job):
        assert attempt["outcome"] == "crashed"
        assert attempt["signal"] == "SIGKILL"
        assert "the kernel's out-of-memory killer; it had held up to" in attempt["exit_reason"]
        assert attempt["peak_memory_bytes"] > 200 * 2**20
    assert "oom_kill 2" in (narrow / "memory.oom_control").read_text()
    assert other in host.slots().values()
    (hosts.folder / "sibling.go").touch()
    assert jobs.wait(sibling, "succeeded")["attempt"] == 1
    until(lambda: len(host.slots()) == 2, what="the replacement")
    assert not [one for one in host.said("fleet_notice") if "template" in one["message"]]
    assert host.stop() == 0


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
