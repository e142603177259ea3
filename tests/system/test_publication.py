"""Results in files: whoever reads sees one version, whole, whatever is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import jobctl
from jobctl.workerproc.context import Context, Token
from tests.system.host import Hosts, Jobs
from tests.waiting import until

STEPS = ("begin", "half", "whole", "published")


def read(folder: Path) -> tuple[str, str] | None:
    version = jobctl.published(folder / "report")
    if version is None:
        return None
    return (version / "head").read_text(), (version / "tail").read_text()


def pass_all(folder: Path) -> None:
    for name in STEPS:
        (folder / f"{name}.go").touch()


def stand_at(folder: Path, step: str) -> int:
    """Everything before it passes; the process that stands there."""
    for name in STEPS[: STEPS.index(step)]:
        (folder / f"{name}.go").touch()
    here = folder / f"{step}.here"
    until(lambda: here.exists() and here.read_text(), within=60, what=f"step {step}")
    return int(here.read_text().split()[-1])


@pytest.mark.parametrize("step", STEPS)
def test_a_report_killed_at_every_step(hosts: Hosts, jobs: Jobs, tmp_path: Path, step: str) -> None:
    """Until the new one is whole the old one is read, and never a piece of either."""
    hosts.start("a", "--slots", "1", app="reports").ready()
    jobs.wait(jobs.enqueue("report_later", {"number": 1}), "succeeded")
    assert read(tmp_path) == ("1", "1")
    job = jobs.enqueue("report", {"number": 2})
    pid = stand_at(tmp_path, step)
    assert read(tmp_path) == (("2", "2") if step == "published" else ("1", "1"))
    os.kill(pid, signal.SIGKILL)
    pass_all(tmp_path)
    row = jobs.wait(job, "succeeded", within=60)
    assert (row["attempt"], read(tmp_path)) == (2, ("2", "2"))
    assert jobctl.published(tmp_path / "report") == tmp_path / "report" / row["result"]
    left = sorted(one.name for one in (tmp_path / "report").iterdir() if one.name[0] == ".")
    assert left == []


def test_an_attempt_that_lost_its_claim_publishes_nothing(
    hosts: Hosts, jobs: Jobs, tmp_path: Path
) -> None:
    """It was frozen, say, and others have taken its job: it wakes late, and moves no pointer."""
    hosts.start("a", "--slots", "1", app="reports").ready()
    jobs.wait(jobs.enqueue("report_later", {"number": 1}), "succeeded")
    job = jobs.enqueue("report", {"number": 2})
    stand_at(tmp_path, "whole")
    jobs.connection.execute(
        "UPDATE jobctl.claim SET token = token + 1000000 WHERE job_id = %s", (job,)
    )
    for name in ("whole", "published"):
        (tmp_path / f"{name}.go").touch()
    versions = tmp_path / "report"
    until(
        lambda: not [one for one in versions.iterdir() if one.name.startswith((".", f"{job}-"))],
        what="the late one to give up",
    )
    assert read(tmp_path) == ("1", "1")


def test_without_a_job_there_is_nobody_to_ask(tmp_path: Path) -> None:
    """A handler that is called by a test publishes all the same; what raised leaves nothing."""
    ctx = Context(type="t")
    with ctx.publish(tmp_path / "out") as new:
        (new.path / "a").mkdir()
        (new.path / "a" / "b").write_text("1")
    assert jobctl.published(tmp_path / "out") == tmp_path / "out" / new.version
    with pytest.raises(ZeroDivisionError), ctx.publish(tmp_path / "none") as new:
        (new.path / "a").write_text(str(1 / 0))
    assert list((tmp_path / "none").iterdir()) == []
    assert jobctl.published(tmp_path / "none") is None
    with pytest.raises(ValueError, match="0 or more"):
        ctx.publish(tmp_path, keep=-1)


def test_versions_that_nobody_can_be_reading_any_more_go(
    hosts: Hosts, jobs: Jobs, tmp_path: Path
) -> None:
    """The one before is kept for those who opened it a moment ago."""
    hosts.start("a", "--slots", "1", app="reports").ready()
    for number in range(4):
        jobs.wait(jobs.enqueue("report_later", {"number": number}), "succeeded")
    whole = [one for one in (tmp_path / "report").iterdir() if not one.is_symlink()]
    assert len(whole) == 2
    assert read(tmp_path) == ("3", "3")


def test_what_lies_beside_the_versions_is_left_alone(tmp_path: Path) -> None:
    """A folder that is used for other things too loses none of them."""
    for name in ("2026-11", "archive", "7-notes", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("x")
    for _ in range(3):
        with Context(type="t").publish(tmp_path, keep=0) as new:
            (new.path / "a").write_text("1")
    names = {one.name for one in tmp_path.iterdir()}
    assert names == {"2026-11", "archive", "7-notes", ".hidden", "current", new.version}
    assert (tmp_path / "archive" / "precious").read_text() == "x"


def test_an_attempt_publishes_in_a_folder_once(tmp_path: Path) -> None:
    """What it has published is being read."""
    ctx = Context(type="t", job_id=7, token=Token(1, 1))
    (tmp_path / "7-1-1").mkdir()
    with pytest.raises(RuntimeError, match=r"published in .* already"), ctx.publish(tmp_path):
        pass


def test_two_tokens_are_two_versions() -> None:
    """What names a version is the right to one attempt."""
    names = {
        Context(type="t", job_id=7, token=Token(1, n)).publish("/nowhere").version for n in (1, 2)
    }
    assert len(names) == 2
