"""Effects with a process killed at every step, in both orders; the world counts what was done."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.system.host import Hosts, Jobs
from tests.waiting import until

#: Where it is killed, in the order of the steps.
STEPS = ("before", "marked", "acted", "done")


def _kill_at(folder: Path, name: str, step: str) -> None:
    """Lets it come to this step, and kills its process there, once; then lets everything pass."""
    for earlier in STEPS[: STEPS.index(step)]:
        (folder / f"{name}.{earlier}.go").touch()
    mark = folder / f"{name}.{step}.here"
    until(lambda: mark.exists() and mark.read_text(), within=60, what=f"{name} to be {step}")
    os.kill(int(mark.read_text().split()[-1]), signal.SIGKILL)
    for every in STEPS:
        (folder / f"{name}.{every}.go").touch()


def _acts(folder: Path, name: str) -> int:
    """How often it was done to the world."""
    acts = folder / f"{name}.acts"
    return len(acts.read_text().splitlines()) if acts.exists() else 0


#: Mode, whether there is a reconcile: what the world and the second attempt see after each kill.
PROMISES: dict[tuple[str, bool], dict[str, tuple[int, str]]] = {
    ("mark_first", False): {
        "before": (1, "new"), "marked": (0, "ambiguous"), "acted": (1, "ambiguous"),
        "done": (1, "done"),
    },
    ("mark_first", True): {
        "before": (1, "new"), "marked": (1, "new"), "acted": (1, "done"), "done": (1, "done"),
    },
    ("act_first", False): {
        "before": (1, "new"), "marked": (1, "new"), "acted": (2, "new"), "done": (1, "done"),
    },
}  # fmt: skip


@pytest.mark.parametrize(("mode", "ask"), PROMISES)
def test_killed_at_every_step(
    hosts: Hosts, jobs: Jobs, tmp_path: Path, mode: str, ask: bool
) -> None:
    """mark_first: never twice, and with reconcile exactly once. act_first: never forgotten."""
    host = hosts.start("a", "--slots", "2", app="promises").ready()
    for step in STEPS:
        name = f"{step}-{mode}-{ask}"
        job = jobs.enqueue("have_effect", {"name": name, "mode": mode, "ask": ask})
        _kill_at(tmp_path, name, step)
        row = jobs.wait(job, "succeeded", within=60)
        assert row["attempt"] == 2
        state = row["result"]["state"]
        assert (_acts(tmp_path, name), state) == PROMISES[mode, ask][step], step
        assert [one["outcome"] for one in jobs.attempts(job)] == ["crashed"]
    _, page = host.get("/metrics")
    counts = {
        line.split('"')[1]: float(line.split()[-1])
        for line in page.splitlines()
        if line.startswith("jobctl_effects_total{")
    }
    assert sum(counts.values()) == len(STEPS)  # of the attempts that lived to say so
    assert counts["done"] >= 1 and counts["repeated"] == 1


@pytest.mark.slow  # it waits for a lease to be over
def test_a_host_that_wakes_up_late(hosts: Hosts, jobs: Jobs, tmp_path: Path) -> None:
    """A stopped host's attempt is the new one's by now: it does not act, and is not heard."""
    first = hosts.start("a", "--slots", "1", "--lease", "2s", app="promises").ready()
    args: dict[str, Any] = {"name": "w", "mode": "mark_first"}
    job = jobs.enqueue("have_effect", args)
    mark = tmp_path / "w.before.here"
    until(lambda: mark.exists() and mark.read_text(), within=60, what="the first to be there")
    slot = int(mark.read_text().split()[0])
    first.send(signal.SIGSTOP)
    os.kill(slot, signal.SIGSTOP)
    try:
        hosts.start("b", "--slots", "1", "--lease", "2s", app="promises").ready()
        until(lambda: len(mark.read_text().split()) == 2, within=90, what="it to run elsewhere")
        for step in STEPS:
            (tmp_path / f"w.{step}.go").touch()
        os.kill(slot, signal.SIGCONT)
        assert jobs.wait(job, "succeeded", within=60)["attempt"] == 2
    finally:
        os.kill(slot, signal.SIGCONT)
        first.send(signal.SIGCONT)
    assert _acts(tmp_path, "w") == 1


def test_in_a_coroutine(hosts: Hosts, jobs: Jobs, tmp_path: Path) -> None:
    """On the slot's own async connection, which is kept for the next job."""
    hosts.start("a", "--slots", "1", app="promises").ready()
    for _ in range(2):
        row = jobs.wait(jobs.enqueue("have_effect_async", {"name": "c"}), "succeeded")
        assert row["result"]["value"] == {"receipt": "c"}
    assert _acts(tmp_path, "c") == 1
