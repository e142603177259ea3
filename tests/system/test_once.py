"""The two stories of examples/once, told as they are, and with a kill at every step."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.host import Host, Hosts, Jobs
from tests.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"
THUMBNAIL, CHARGE = ("render", "send", "sent"), ("begin", "charge", "charged", "book")


@pytest.fixture(autouse=True)
def _booking(jobs: Jobs) -> Iterator[None]:
    """The application's table."""
    jobs.connection.execute(
        "CREATE TABLE public.booking (order_id bigint PRIMARY KEY, receipt text)"
    )
    try:
        yield
    finally:
        jobs.connection.execute("DROP TABLE public.booking")


def _start(hosts: Hosts, folder: Path, app: str, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    environ = {"ONCE_FOLDER": str(folder / "world")}
    return hosts.start("a", "--slots", "1", app=app, environ=environ).ready()


def _world(folder: Path, *names: str) -> list[str]:
    """What is in this part of the world."""
    place = folder.joinpath("world", *names)
    return sorted(one.name for one in place.iterdir()) if place.exists() else []


def _kill_at(folder: Path, steps: tuple[str, ...], step: str) -> None:
    """At this step, once; then everything may pass."""
    for name in steps[: steps.index(step)]:
        (folder / f"{name}.go").touch()
    mark = folder / f"{step}.here"
    until(lambda: mark.exists() and mark.read_text(), within=60, what=f"step {step}")
    os.kill(int(mark.read_text().split()[-1]), signal.SIGKILL)
    for name in steps:
        (folder / f"{name}.go").touch()


@pytest.mark.parametrize("step", THUMBNAIL)
def test_a_thumbnail_and_its_mail(
    hosts: Hosts, jobs: Jobs, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mail always arrives; twice only when nobody could say that it had been sent."""
    _start(hosts, tmp_path, "once_step_by_step", monkeypatch)
    job = jobs.enqueue("thumbnail_and_mail", {"image": "cat", "to": "zoe@example"})
    _kill_at(tmp_path, THUMBNAIL, step)
    row = jobs.wait(job, "succeeded", within=60)
    assert row["attempt"] == 2
    assert len(_world(tmp_path, "mail")) == (2 if step == "sent" else 1)
    assert _world(tmp_path, "gallery") == ["cat.thumb"]
    assert row["progress"]["phase"] == "sent"


@pytest.mark.parametrize("step", CHARGE)
def test_a_charge_killed_at_every_step(
    hosts: Hosts, jobs: Jobs, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Charged once, booked once, succeeded once."""
    _start(hosts, tmp_path, "once_step_by_step", monkeypatch)
    job = jobs.enqueue("charge_order", {"order": 7, "cents": 4200})
    _kill_at(tmp_path, CHARGE, step)
    assert jobs.wait(job, "succeeded", within=60)["attempt"] == 2
    _is_charged_once(jobs, tmp_path, job)


def test_a_charge_that_timed_out(
    hosts: Hosts, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had gone through. The next attempt asks instead of charging again."""
    (tmp_path / "world" / "bank").mkdir(parents=True)
    (tmp_path / "world" / "bank" / "slow").touch()
    _start(hosts, tmp_path, "once.jobs", monkeypatch)
    job = jobs.enqueue("charge_order", {"order": 7, "cents": 4200})
    assert jobs.wait(job, "succeeded", within=60)["attempt"] == 2
    (failed,) = jobs.attempts(job)
    assert failed["error_class"] == "TimeoutError"
    _is_charged_once(jobs, tmp_path, job)


def _is_charged_once(jobs: Jobs, folder: Path, job: int) -> None:
    assert (folder / "world" / "bank" / "calls").read_text() == "charge:7\n"
    rows = jobs.connection.execute("SELECT order_id, receipt FROM public.booking").fetchall()
    assert rows == [{"order_id": 7, "receipt": "receipt of charge:7"}]
    assert jobs.job(job)["result"] == {"receipt": "receipt of charge:7"}
    jobs.nothing_is_misplaced()
