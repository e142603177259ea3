"""The storm for half a minute; `make chaos` is the long one, with the negative controls."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.chaos.controls import CONTROLS, Control, without
from tests.chaos.hosts import ROOT
from tests.chaos.storm import Plan, run
from tests.servers import guarded_folder
from tests.waiting import until


@pytest.mark.slow
def test_a_storm_of_half_a_minute() -> None:
    """Kills, freezes, partitions, a slow network, restarts and a promotion; nothing is lost."""
    with guarded_folder() as folder:
        verdict = run(Plan(20, seed=20), folder)
    assert verdict.violations == []
    assert verdict.figures["fault: promotion"] == 1
    assert verdict.figures["endings succeeded"] > 50


@contextmanager
def a_run(seconds: int) -> Iterator[subprocess.Popen[str]]:
    """As `make chaos` starts one. Skips where it would be without cables."""
    command = [sys.executable, "-m", "tests.chaos", "--no-controls", "--seed", "8"]
    process = subprocess.Popen(
        [*command, "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        how = process.stdout.readline()
        if "no cables" in how:
            pytest.skip(how.strip())
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_storm_in_which_cables_are_pulled() -> None:
    """Hosts in network namespaces of their own beside those behind proxies."""
    with a_run(40) as process:
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    assert "on a cable" in out
    assert "nothing was lost, nothing was done twice" in out


@pytest.mark.slow
def test_a_storm_is_killed() -> None:
    """kill -9 of the run: no process of it, and so no namespace and no device, is left."""
    with a_run(300) as process:
        network = Path(f"/proc/{process.pid}/ns/net").readlink()
        assert network != Path("/proc/self/ns/net").readlink()
        until(lambda: len(inside(network)) > 12, within=60, what="hosts and servers")
    until(lambda: not inside(network), within=60, what="the end of everything")


def inside(network: Path) -> list[int]:
    """Who lives in this network namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "ns" / "net").readlink() == network:
                    found.append(int(entry.name))
    return found


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.guard)
def test_every_guard_can_still_be_taken_out(
    control: Control, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A control that does not find its guard any more would prove nothing in `make chaos`."""
    without(control, tmp_path_factory.mktemp("control"))
