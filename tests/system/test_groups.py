"""Control groups: what a job starts dies with its slot, wherever it has gone to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_groups import group_of_ours, joining, members
from tests.system.host import Host, Hosts, Jobs, alive
from tests.waiting import until


@pytest.fixture
def delegated() -> Iterator[Path]:
    """As systemd's Delegate= makes one."""
    with group_of_ours("cgroup2") as group:
        yield group


def start(hosts: Hosts, group: Path, name: str = "one", *options: str, **how: str) -> Host:
    return hosts.start(
        name, "--slots", "2", *options, app="rough", prefix=joining(group), **how
    ).ready()


def hidden(hosts: Hosts, name: str) -> int:
    until((hosts.folder / name).exists, what="the hidden process")
    until((hosts.folder / name).read_text, what="its number")
    return int((hosts.folder / name).read_text())


def test_a_hung_job_has_hidden_a_process(hosts: Hosts, jobs: Jobs, delegated: Path) -> None:
    """No session, parent, program or environment says whose it is. It dies with its slot; the
    sibling notices nothing; and nothing of the groups is left when the host has left."""
    host = start(hosts, delegated)
    (said,) = host.said("control_groups")
    assert "delegated: each slot has one of its own" in said["sentence"]
    assert said["sentence"] == host.state()["control_groups"]
    sibling = jobs.enqueue("hold", {"name": "sibling"})
    until((hosts.folder / "sibling").exists, what="the sibling")
    job = jobs.enqueue("hide_and_hang", {"name": "hidden"})
    pid = hidden(hosts, "hidden")
    (base,) = delegated.glob("jobctl-*")
    before = {path.name for path in base.glob("slot-*")}
    assert {host.slots()[int(name[5:].split(".")[0])] for name in before} <= set(members(base))
    jobs.wait(job, "dead")
    assert not alive([pid])
    until(lambda: len(host.slots()) == 2, what="the replacement")
    until(lambda: len({path.name for path in base.glob("slot-*")} - before) == 1, what="its group")
    until(lambda: len(list(base.glob("slot-*"))) == 2, what="the old one's removal")
    (hosts.folder / "sibling.go").touch()
    assert jobs.wait(sibling, "succeeded")["attempt"] == 1
    assert host.stop() == 0
    assert list(delegated.glob("jobctl-*")) == []


def test_without_a_group_it_stays(hosts: Hosts, jobs: Jobs, delegated: Path) -> None:
    """The negative control."""
    start(hosts, delegated, without="groups")
    job = jobs.enqueue("hide_and_hang", {"name": "hidden"})
    pid = hidden(hosts, "hidden")
    jobs.wait(job, "dead")
    assert alive([pid])


def test_a_job_leaves_a_hidden_process(hosts: Hosts, jobs: Jobs, delegated: Path) -> None:
    """Whose it is, is told by its group: that slot is replaced between two jobs."""
    host = start(hosts, delegated)
    left_in = jobs.wait(jobs.enqueue("hide_and_return", {"name": "left"}), "succeeded")["result"]
    pid = hidden(hosts, "left")
    until(lambda: not alive([pid]), what="its end")
    until(lambda: len(host.slots()) == 2, what="the replacement")
    assert left_in not in host.slots().values()
    (notice,) = host.said("fleet_notice")
    assert notice["notice"] == "outlived"


def test_a_supervisor_is_killed_and_its_groups_are_swept(
    hosts: Hosts, jobs: Jobs, delegated: Path
) -> None:
    """By its own next life, and by nobody else's start."""
    first = start(hosts, delegated)
    jobs.enqueue("hide_and_hang", {"name": "orphan"})
    pid = hidden(hosts, "orphan")
    first.kill()
    (left,) = delegated.glob("jobctl-*")
    other = start(hosts, delegated, "another")
    assert alive([pid])
    assert left.exists()
    again = start(hosts, delegated, "again", "--host", "one")
    assert not alive([pid])
    assert not left.exists()
    notices = [one for one in again.said("fleet_notice") if one["notice"] == "leaked"]
    assert "1 processes that jobs of a supervisor before this one" in notices[0]["message"]
    for host in (other, again):
        host.stop()
    assert list(delegated.glob("jobctl-*")) == []


def test_where_there_is_none_it_is_said(hosts: Hosts, jobs: Jobs) -> None:
    """And everything else is as it was."""
    host = hosts.start("one", "--slots", "1").ready()
    (said,) = host.said("control_groups")
    assert said["sentence"].startswith(("there is none", "not delegated", "delegated"))
    jobs.wait(jobs.enqueue("add", {"a": 1, "b": 2}), "succeeded")


def test_the_doctor_tells_what_the_supervisor_here_has_found(
    hosts: Hosts, database: str, tmp_path: Path
) -> None:
    """A fact, not a fault."""
    host = hosts.start("one", "--slots", "1").ready()
    command = [sys.executable, "-m", "jobctl", "doctor", "--json"]
    ran = subprocess.run(
        [*command, "--runtime-dir", str(host.folder)],
        env={**os.environ, "JOBCTL_DSN": database},
        capture_output=True,
        check=False,
    )
    (found,) = [one for one in json.loads(ran.stdout) if one["about"] == "control groups"]
    assert found["fine"]
    assert found["fact"] == f"one: {host.state()['control_groups']}"
