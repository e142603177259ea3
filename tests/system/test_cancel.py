"""Cancel as a state: at each moment of a job's life, what was answered and what became of it."""

from __future__ import annotations

import os
import random
import signal
import threading
from time import monotonic
from typing import Any

import psycopg
import pytest

import jobctl
from tests.system.host import Hosts, Jobs
from tests.waiting import until


def cancel(jobs: Jobs, job: int, force_after: float | None = None) -> str:
    """What the caller is answered."""
    conn: psycopg.Connection[Any] = jobs.connection
    return jobctl.cancel(conn, job, reason="ordered twice", force_after=force_after)


def lines(hosts: Hosts, name: str) -> list[str]:
    """The marks that a handler has left: job, attempt, process, whether it was cancelled."""
    path = hosts.folder / name
    return path.read_text().splitlines() if path.exists() else []


def begun(hosts: Hosts, jobs: Jobs, type_: str, name: str | None = None) -> int:
    """A job whose handler has begun."""
    name = name or type_
    job = jobs.enqueue(type_, {"name": name})
    until(lambda: lines(hosts, name), within=30, what=f"{type_} to begin")
    return job


def pass_by(seconds: float) -> None:
    """Long enough for what must not happen to happen."""
    end = monotonic() + seconds
    until(lambda: monotonic() > end, within=seconds + 30, what="the time")


# Where it is met --------------------------------------------------------------------------------


def test_before_it_is_claimed(hosts: Hosts, jobs: Jobs) -> None:
    """It never runs, and the job behind it does."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    first = begun(hosts, jobs, "hold")
    job = jobs.enqueue("hold", {"name": "second"}, key="k")
    behind = jobs.enqueue("nothing")
    assert cancel(jobs, job) == "cancelled"
    (hosts.folder / "hold.go").touch()
    jobs.wait(behind, "succeeded")
    assert jobs.job(first)["state"] == "succeeded"
    assert (lines(hosts, "second"), jobs.job(job)["state"]) == ([], "cancelled")
    assert jobs.enqueue("hold", {"name": "third"}, key="k") == job  # within its ttl
    jobs.nothing_is_misplaced()
    assert host.said("cancel_asked") == []


@pytest.mark.parametrize("type_", ["ask", "await_long"])
def test_between_claim_and_start(hosts: Hosts, jobs: Jobs, type_: str) -> None:
    """The slot has been given it and has not begun: the handler meets it where it first asks."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    (slot,) = host.slots().values()
    os.kill(slot, signal.SIGSTOP)
    job = jobs.enqueue(type_, {"name": type_})
    jobs.wait(job, "running")
    assert cancel(jobs, job) == "cancel_requested"
    until(lambda: host.said("cancel_asked"), within=30, what="the supervisor to hear of it")
    os.kill(slot, signal.SIGCONT)
    jobs.wait(job, "cancelled")
    assert len(lines(hosts, type_)) == 1
    assert list(host.slots().values()) == [slot]


def test_a_handler_asks_at_a_safe_point(hosts: Hosts, jobs: Jobs) -> None:
    """It stops there, the record says where, and its slot lives on."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    slots = host.slots()
    job = begun(hosts, jobs, "ask")
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
    job = begun(hosts, jobs, "await_long")
    assert cancel(jobs, job) == "cancel_requested"
    jobs.wait(job, "cancelled")
    (attempt,) = jobs.attempts(job)
    assert (attempt["outcome"], attempt["error_class"]) == ("cancelled", "Cancelled")
    assert lines(hosts, "await_long.cancelled")


@pytest.mark.parametrize(
    "without", ["cancel channel", pytest.param("cancel ear", marks=pytest.mark.slow)]
)
def test_nobody_is_told(hosts: Hosts, jobs: Jobs, without: str) -> None:
    """A notification that is lost costs a renewal; without the ear it never comes."""
    hosts.start("one", "--slots", "1", "--lease", "4s", app="cancels", without=without).ready()
    job = begun(hosts, jobs, "ask")
    cancel(jobs, job)
    if without == "cancel channel":
        jobs.wait(job, "cancelled", within=30)
    else:
        pass_by(3)
        assert jobs.job(job)["state"] == "running"


@pytest.mark.parametrize("without", [None, pytest.param("cancel aim", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("next_", "hit"), [("unhurt", "RuntimeError"), ("unhurt_async", "CancelledError")]
)
def test_a_cancel_comes_late(
    hosts: Hosts, jobs: Jobs, next_: str, hit: str, without: str | None
) -> None:
    """What was meant for one job is there still when the next one runs in its slot: that one is not
    hit. With the aim taken out it is."""
    host = hosts.start("one", "--slots", "1", app="cancels", without=without).ready()
    meant = begun(hosts, jobs, "hold")
    cancel(jobs, meant)
    until(lambda: host.said("cancel_asked"), within=30, what="the supervisor to hear of it")
    (hosts.folder / "hold.go").touch()
    jobs.wait(meant, "succeeded")
    job = begun(hosts, jobs, next_)
    (pid,) = host.slots().values()
    for _ in range(3):
        os.kill(pid, signal.SIGUSR1)
    pass_by(0.3)
    (hosts.folder / f"{next_}.go").touch()
    assert jobs.wait(job, "succeeded")["result"] == ("unhurt" if without is None else hit)


# By force ---------------------------------------------------------------------------------------


def test_c_code_never_asks(hosts: Hosts, jobs: Jobs) -> None:
    """It runs on with the request, until force comes: its stack is kept, its slot replaced."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    slots = host.slots()
    job = begun(hosts, jobs, "sum_in_c")
    assert cancel(jobs, job) == "cancel_requested"
    until(lambda: host.said("cancel_asked"), within=30, what="the supervisor to hear of it")
    pass_by(0.5)
    assert jobs.job(job)["state"] == "running"
    assert cancel(jobs, job, force_after=0.2) == "cancel_requested"
    jobs.wait(job, "cancelled", within=30)
    (attempt,) = jobs.attempts(job)
    assert (attempt["outcome"], attempt["error"]) == (
        "cancelled", "cancelled by force; its process was killed",
    )  # fmt: skip
    assert "in sum_in_c" in attempt["stack"]
    assert len(lines(hosts, "sum_in_c")) == 1
    jobs.wait(jobs.enqueue("nothing"), "succeeded")
    assert host.slots() != slots
    jobs.nothing_is_misplaced()


@pytest.mark.parametrize("force", [False, True])
def test_how_far_it_had_come_is_on_record(hosts: Hosts, jobs: Jobs, force: bool) -> None:
    """What it said last of itself, with the job and with the attempt, also where it was killed."""
    hosts.start("one", "--slots", "1", app="cancels").ready()
    if not force:
        (hosts.folder / "stepwise.ask").touch()
    job = begun(hosts, jobs, "stepwise")
    cancel(jobs, job, force_after=0.0 if force else None)
    row = jobs.wait(job, "cancelled", within=30)
    (attempt,) = jobs.attempts(job)
    for progress in (row["progress"], attempt["progress"]):
        assert (progress["phase"], progress["done"], progress["total"]) == ("packing", 3, 10)


@pytest.mark.parametrize("without", [None, pytest.param("commit point", marks=pytest.mark.slow)])
@pytest.mark.parametrize("type_", ["commit", "commit_async"])
def test_after_its_commit_point(hosts: Hosts, jobs: Jobs, type_: str, without: str | None) -> None:
    """Neither a request nor force reaches it, and it succeeds. With the guard out force does."""
    host = hosts.start("one", "--slots", "1", app="cancels", without=without).ready()
    (hosts.folder / f"{type_}.commit").touch()
    job = begun(hosts, jobs, type_)
    until(lambda: lines(hosts, f"{type_}.committed"), within=30, what="its commit point")
    assert cancel(jobs, job, force_after=0.1) == "cancel_requested"
    until(lambda: host.said("cancel_asked"), within=30, what="the supervisor to hear of it")
    if without is not None:
        jobs.wait(job, "cancelled", within=30)
        return
    pass_by(1.5)
    assert jobs.job(job)["state"] == "running"
    (hosts.folder / f"{type_}.go").touch()
    assert jobs.wait(job, "succeeded")["result"] == "committed"
    assert cancel(jobs, job) == "already_succeeded"


@pytest.mark.parametrize("type_", ["commit", "commit_async"])
def test_before_its_commit_point(hosts: Hosts, jobs: Jobs, type_: str) -> None:
    """It never gets there."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, type_)
    cancel(jobs, job)
    until(lambda: host.said("cancel_asked"), within=30, what="the supervisor to hear of it")
    if type_ == "commit":
        (hosts.folder / "commit.commit").touch()
    jobs.wait(job, "cancelled")
    assert lines(hosts, f"{type_}.committed") == []


# Never again ------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["fail", "snooze", "killed", "drained"])
def test_it_ends_another_way_and_is_not_tried_again(hosts: Hosts, jobs: Jobs, type_: str) -> None:
    """It fails, snoozes, its process dies, its host leaves: it would run again, and does not."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, type_ if type_ in ("fail", "snooze") else "hold", type_)
    (slot,) = host.slots().values()
    assert cancel(jobs, job) == "cancel_requested"
    if type_ == "killed":
        os.kill(slot, signal.SIGKILL)
    elif type_ == "drained":
        assert host.stop(signal.SIGQUIT) == 5
        hosts.start("two", "--slots", "1", app="cancels").ready()
    else:
        (hosts.folder / f"{type_}.go").touch()
    jobs.wait(job, "cancelled", within=30)
    jobs.wait(jobs.enqueue("nothing"), "succeeded", within=30)
    assert len(lines(hosts, type_)) == 1
    jobs.nothing_is_misplaced()


@pytest.mark.slow  # it waits for a lease to be over
def test_its_host_is_gone(hosts: Hosts, jobs: Jobs) -> None:
    """Cancelled while nobody runs it any more: the reaper ends it, and it runs nowhere else."""
    host = hosts.start("one", "--slots", "1", "--lease", "2s", app="cancels").ready()
    job = begun(hosts, jobs, "hold")
    host.kill()
    assert cancel(jobs, job) == "cancel_requested"
    hosts.start("two", "--slots", "1", "--lease", "2s", app="cancels").ready()
    jobs.wait(job, "cancelled", within=60)
    (attempt,) = jobs.attempts(job)
    assert attempt["outcome"] == "lost"
    assert len(lines(hosts, "hold")) == 1


def test_while_it_waits_for_another_attempt(hosts: Hosts, jobs: Jobs) -> None:
    """At once: it has no hook, and nothing of it runs."""
    hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, "fail_slowly")
    jobs.wait(job, "retrying")
    assert cancel(jobs, job) == "cancelled"
    row = jobs.job(job)
    assert (row["state"], row["attempt"], row["failure_class"]) == ("cancelled", 1, "ValueError")


def test_while_its_success_is_being_written(database: str, hosts: Hosts, jobs: Jobs) -> None:
    """The handler has returned, and the row is in somebody's hands: whoever is next has the word,
    and the answer is that word."""
    hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, "hold")
    answers: list[str] = []

    def ask() -> None:
        with psycopg.connect(database, autocommit=True) as mine:
            answers.append(jobctl.cancel(mine, job))

    with psycopg.connect(database) as somebody:
        somebody.execute("SELECT FROM jobctl.job WHERE id = %s FOR UPDATE", (job,))
        (hosts.folder / "hold.go").touch()
        pass_by(0.3)
        asking = threading.Thread(target=ask)
        asking.start()
        pass_by(0.3)
        somebody.rollback()
    asking.join(30)
    state = jobs.wait(job, "succeeded")["state"]
    assert answers[0] in ("cancel_requested", "already_succeeded")
    assert cancel(jobs, job) == f"already_{state}"


def test_cancel_against_success(database: str, hosts: Hosts, jobs: Jobs) -> None:
    """Hundreds of short jobs, sync and async, each cancelled at some moment of its life: every
    answer agrees with what happened, and what nobody cancelled was not touched."""
    hosts.start("one", "--slots", "3", app="cancels").ready()
    kinds = ("brief", "brief_async")
    answers: dict[int, str] = {}
    others: list[int] = []

    def race(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(database, autocommit=True) as conn:
            for _ in range(120):
                job = jobctl.enqueue(conn, chance.choice(kinds), {"ms": chance.randrange(8)})
                others.append(jobctl.enqueue(conn, chance.choice(kinds), {"ms": 0}))
                moment = monotonic() + chance.random() * 0.02
                while monotonic() < moment:
                    pass
                answers[job] = jobctl.cancel(conn, job)

    threads = [threading.Thread(target=race, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    query = "SELECT id, state FROM jobctl.jobs WHERE finished_at IS NOT NULL"

    def ended() -> dict[int, str]:
        return {row["id"]: row["state"] for row in jobs.connection.execute(query).fetchall()}

    until(lambda: len(ended()) == 480, within=120, what="all jobs to end")
    final = ended()
    for job, answer in answers.items():
        allowed = {
            "cancelled": {"cancelled"},
            "already_succeeded": {"succeeded"},
            "cancel_requested": {"cancelled", "succeeded"},
        }[answer]
        assert final[job] in allowed, (job, answer, final[job])
        later = cancel(jobs, job)
        assert later == ("cancelled" if final[job] == "cancelled" else "already_succeeded")
    assert {final[job] for job in others} == {"succeeded"}
    assert len(set(answers.values())) > 1, "no race took place"
    jobs.nothing_is_misplaced()
