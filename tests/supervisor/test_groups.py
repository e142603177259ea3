"""Control groups by themselves: killing, controllers, ceilings, and whose process it is."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from jobctl.supervisor.groups import (
    Group,
    Groups,
    give_back,
    kill_one_by_one,
    own_group,
    put_to_use,
)
from jobctl.supervisor.strays import mark_of
from tests.control_groups import group_of_ours, joining, members
from tests.supervisor.fleets import in_own_process
from tests.waiting import until

#: Starts a sleep in a session of its own again and again, never more than some dozens.
BREEDER = "for i in $(seq 40); do setsid sleep 600 & done; while :; do setsid sleep 0.05; done"


@pytest.fixture
def delegated() -> Iterator[Path]:
    """With whatever controller there is; where systemd rules, with what it hands on."""
    with group_of_ours("cgroup2") as group, ExitStack() as after:
        handed_on = group.parent / "cgroup.subtree_control"
        there = (group.parent / "cgroup.controllers").read_text().split()
        if there and not handed_on.read_text().split() and not Path("/run/systemd/system").exists():
            with suppress(OSError):  # a controller that is bound to version 1 meanwhile
                handed_on.write_text(f"+{there[0]}")
                after.callback(handed_on.write_text, f"-{there[0]}")
        yield group


def breed(group: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*joining(group), "sh", "-c", BREEDER])


def test_what_breeds_is_killed_by_the_kernel_at_once(delegated: Path) -> None:
    """Whatever is forked while the signals go out."""
    group = Group(delegated / "slot-1.1", memory=False)
    breeder = breed(group.path)
    until(lambda: len(members(group.path)) > 40, what="some dozens")
    assert group.populated()
    assert not group.remove()
    group.kill()
    assert breeder.wait(10) == -signal.SIGKILL
    until(lambda: not group.populated(), what="the others")
    assert group.remove()
    assert not group.path.exists()


def test_what_breeds_is_killed_by_an_older_kernel(delegated: Path) -> None:
    """Which has no cgroup.kill: the group is frozen first."""
    group = Group(delegated / "slot-1.1", memory=False)
    breeder = breed(group.path)
    until(lambda: len(members(group.path)) > 40, what="some dozens")
    kill_one_by_one(group.path)
    assert breeder.wait(10) == -signal.SIGKILL
    until(lambda: not group.populated(), what="the others")
    assert group.remove()


def test_a_job_makes_groups_in_its_own(delegated: Path) -> None:
    """As root it can: they go with its slot's."""
    group = Group(delegated / "slot-1.1", memory=False)
    (group.path / "a" / "b").mkdir(parents=True)
    sleeper = subprocess.Popen([*joining(group.path / "a" / "b"), "sleep", "600"])
    until(group.populated, what="the sleeper")
    group.kill()
    assert sleeper.wait(10) == -signal.SIGKILL
    until(group.remove, what="its removal")


def test_a_process_is_told_by_its_group(delegated: Path) -> None:
    """When nothing else is left that tells it."""
    path = delegated / "jobctl-0af3-4711" / "slot-3.17"
    path.mkdir(parents=True)
    sleeper = subprocess.Popen([*joining(path), "sleep", "600"], env={"PATH": os.environ["PATH"]})
    try:
        until(lambda: mark_of(sleeper.pid), what="its mark")
        assert mark_of(sleeper.pid) == (4711, 3, 17, "0af3")
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_controller_is_put_to_use_and_given_back(delegated: Path) -> None:
    """A group that hands a controller on has no processes, so the supervisor moves out of it; not
    if somebody else is in there as well."""
    controllers = (delegated / "cgroup.controllers").read_text().split()
    if not controllers:
        pytest.skip("no controller of version 2 reaches this group")
    base = delegated / "jobctl-0-1"
    base.mkdir()
    assert put_to_use(delegated, base, "no such") == "it is not there"

    def alone() -> None:
        (delegated / "cgroup.procs").write_text("0")
        assert own_group() == delegated
        assert put_to_use(delegated, base, controllers[0]) == ""
        slot = Group(base / "slot-1.1", memory=False)
        assert controllers[0] in (slot.path / "cgroup.controllers").read_text()
        assert own_group() == base / "supervisor"
        assert slot.remove()
        give_back(delegated, base, controllers[0])
        assert own_group() == delegated
        assert list(base.glob("*/")) == []

    in_own_process(alone)

    def in_company() -> None:
        (delegated / "cgroup.procs").write_text("0")
        other = subprocess.Popen(["sleep", "600"])
        try:
            assert put_to_use(delegated, base, controllers[0]).startswith("other processes")
            assert own_group() == delegated
            assert list(base.glob("*/")) == []
        finally:
            other.kill()
            other.wait()

    in_own_process(in_company)


def test_what_cannot_be_had(tmp_path: Path) -> None:
    """Not a group, or one that nobody may write to: it is said, and there are no groups."""
    groups = Groups("0", tmp_path / "missing")
    assert not groups.findings.delegated
    assert "not delegated" in groups.findings.sentence
    assert "Delegate=" in groups.findings.sentence
    assert groups.make(1, 1) is None
    assert groups.close()


def test_a_ceiling_is_the_kernels_too(tmp_path: Path) -> None:
    """In files that stand for the memory controller's, which few machines of ours have: written
    when a job's ceiling is another, and a little above it; whom the kernel has killed is read."""
    group = Group(tmp_path / "slot-1.1", memory=True)
    limit, swap = group.path / "memory.max", group.path / "memory.swap.max"
    for file in (limit, swap, group.path / "memory.events"):
        file.touch()
    group.hold_to(400)
    assert (limit.read_text(), swap.read_text()) == ("500", "0")
    limit.write_text("")
    group.hold_to(400)
    assert limit.read_text() == ""  # a job like the one before costs nothing
    group.hold_to(0)
    assert (limit.read_text()[:3], swap.read_text()) == ("max", "max")
    assert group.starved() is False
    (group.path / "memory.events").write_text("oom 3\noom_kill 1\noom_group_kill 0\n")
    assert group.starved() is True


def test_without_the_controller_nobody_knows(tmp_path: Path) -> None:
    """Then the machine's own count decides (`test_oom.py`)."""
    group = Group(tmp_path / "slot-1.1", memory=False)
    group.hold_to(400)
    assert list(group.path.iterdir()) == []
    assert group.starved() is None
