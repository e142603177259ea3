"""A control group of the test's own, made for real and gone afterwards; where there can be none, a
reason to skip."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.waiting import until


def mounted(kind: str) -> Path | None:
    """Where a hierarchy is: `cgroup2`, or a controller of version 1."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        type_, _, options = after.split(" ", 2)
        if type_ == kind or (type_ == "cgroup" and kind in options.split(",")):
            return Path(re.sub(r"\\040", " ", before.split()[4]))
    return None


@contextmanager
def group_of_ours(kind: str) -> Iterator[Path]:
    """A group below this process's own, or the top, for as long as the test takes."""
    top = mounted(kind)
    if top is None:
        pytest.skip(f"there is no hierarchy of control groups {kind} here")
    path = top / f"jobctl-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made in {top} ({error.strerror}); it needs root")
    try:
        yield path
    finally:
        _end(path)


def joining(group: Path) -> tuple[str, ...]:
    """The words before a command that put it into a group."""
    return ("sh", "-c", 'echo 0 > "$0" && exec "$@"', str(group / "cgroup.procs"))


def members(group: Path) -> list[int]:
    """The living in it and below it."""
    found: list[int] = []
    for file in group.rglob("cgroup.procs"):
        with suppress(OSError):
            found += map(int, file.read_text().split())
    return found


def _end(group: Path) -> None:
    """Whatever the test has left in it."""
    with suppress(OSError):
        (group / "cgroup.kill").write_text("1")
    until(lambda: _removed(group), within=10, what=f"{group} to be empty and gone")


def _removed(group: Path) -> bool:
    below = [path for path in group.rglob("*") if path.is_dir()]
    for path in (*sorted(below, reverse=True), group):
        with suppress(OSError):
            path.rmdir()
    return not group.exists()
