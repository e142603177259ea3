"""Cancel as a state: at each moment of a job's life, what was answered and what became of it."""

from __future__ import annotations

from tests.system.host import Hosts, Jobs
from tests.waiting import until


def cancel(jobs: Jobs, job: int, force_after: str | None = None) -> str:
    """What the caller is answered."""
    row = jobs.connection.execute(
        "SELECT jobctl.cancel(%s, 'ann', 'ordered twice', force_after => %s) AS answer",
        (job, force_after),
    ).fetchone()
    assert row is not None
    return str(row["answer"])


def lines(hosts: Hosts, name: str) -> list[str]:
    """The marks that a handler has left."""
    path = hosts.folder / name
    return path.read_text().splitlines() if path.exists() else []


def started(hosts: Hosts, jobs: Jobs, type_: str) -> int:
    """A job whose handler has started."""
    job = jobs.enqueue(type_, {"name": type_})
    until((hosts.folder / type_).exists, what=f"{type_} to start")
    return job


def test_a_handler_asks_at_a_safe_point(hosts: Hosts, jobs: Jobs) -> None:
    """It stops there, the record says where, and its slot lives on."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    slots = host.slots()
    job = started(hosts, jobs, "ask")
    assert cancel(jobs, job) == "cancel_requested"
    row = jobs.wait(job, "cancelled")
    assert row["cancel_requested_at"] is not None
    (attempt,) = jobs.attempts(job)
    assert (attempt["outcome"], attempt["error_class"]) == ("cancelled", "Cancelled")
    assert "in ask" in attempt["stack"]
    assert cancel(jobs, job) == "cancelled"
    assert host.slots() == slots
    assert "jobctl_cancel_latency_seconds_count 1.0" in host.get("/metrics")[1]
    (said,) = host.said("cancel_asked")
    assert said["job"] == job
    jobs.nothing_is_misplaced()


def test_a_task_that_waits_is_cancelled(hosts: Hosts, jobs: Jobs) -> None:
    """Its children and its time-out see an ordinary cancellation; the attempt is cancelled."""
    hosts.start("one", "--slots", "1", app="cancels").ready()
    job = started(hosts, jobs, "await_long")
    assert cancel(jobs, job) == "cancel_requested"
    jobs.wait(job, "cancelled")
    (attempt,) = jobs.attempts(job)
    assert (attempt["outcome"], attempt["error_class"]) == ("cancelled", "Cancelled")
    assert lines(hosts, "await_long.cancelled")
    jobs.nothing_is_misplaced()
