"""on_cancel: what was begun is made good, by the slot that stopped or in an attempt of its own."""

from __future__ import annotations

import os
import signal

import pytest

from tests.system.host import Hosts, Jobs
from tests.system.test_cancel import begun, cancel, lines
from tests.waiting import until


@pytest.mark.parametrize("type_", ["book", "book_async"])
def test_in_the_slot_that_stopped(hosts: Hosts, jobs: Jobs, type_: str) -> None:
    """At once, in the same process and attempt; ctx.cancelled is true, ctx.check is silent."""
    hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, type_)
    cancel(jobs, job)
    jobs.wait(job, "cancelled")
    (ran,), (made_good,) = lines(hosts, type_), lines(hosts, f"{type_}.hook")
    assert made_good == ran.replace("False", "True")
    assert len(jobs.attempts(job)) == 1


def test_after_force(hosts: Hosts, jobs: Jobs) -> None:
    """The process is gone: the hook gets an attempt of its own, and force does not follow it."""
    hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, "book_in_c")
    (hosts.folder / "book_in_c.hold").touch()
    cancel(jobs, job, force_after=0.1)
    until(lambda: lines(hosts, "book_in_c.hook"), within=30, what="the hook")
    row = jobs.job(job)
    assert (row["state"], row["attempt"]) == ("running", 2)
    assert cancel(jobs, job) == "cancel_requested"
    (hosts.folder / "book_in_c.let").touch()
    assert jobs.wait(job, "cancelled", within=30)["attempt"] == 2
    assert [one["outcome"] for one in jobs.attempts(job)] == ["cancelled", "cancelled"]
    assert len(lines(hosts, "book_in_c")) == len(lines(hosts, "book_in_c.hook")) == 1
    jobs.nothing_is_misplaced()


def test_for_what_waits(hosts: Hosts, jobs: Jobs) -> None:
    """What waits for another attempt had begun and is made good; what never began is not."""
    hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, "book_slowly")
    jobs.wait(job, "retrying")
    fresh = jobs.enqueue("book_slowly", {"name": "fresh"}, delay="1 hour")
    assert cancel(jobs, job) == "cancel_requested"
    assert cancel(jobs, fresh) == "cancelled"
    jobs.wait(job, "cancelled", within=30)
    assert len(lines(hosts, "book_slowly")) == len(lines(hosts, "book_slowly.hook")) == 1
    assert lines(hosts, "fresh.hook") == []


def test_it_fails(hosts: Hosts, jobs: Jobs) -> None:
    """That is on record, and the job is cancelled all the same."""
    hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, "book")
    (hosts.folder / "book.spoil").touch()
    cancel(jobs, job)
    row = jobs.wait(job, "cancelled")
    assert row["failure_class"] == "on_cancel"
    assert "the bank is closed" in row["last_error"]
    (attempt,) = jobs.attempts(job)
    assert (attempt["outcome"], attempt["error_class"]) == ("cancelled", "RuntimeError")
    assert "in give_back" in attempt["stack"]


def test_its_process_dies(hosts: Hosts, jobs: Jobs) -> None:
    """In an attempt of its own it has had its run: the job is cancelled, and nothing comes back."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, "book_slowly")
    jobs.wait(job, "retrying")
    (hosts.folder / "book_slowly.hold").touch()
    cancel(jobs, job)
    until(lambda: lines(hosts, "book_slowly.hook"), within=30, what="the hook")
    (slot,) = host.slots().values()
    os.kill(slot, signal.SIGKILL)
    row = jobs.wait(job, "cancelled", within=30)
    assert row["failure_class"] == "crash"
    jobs.wait(jobs.enqueue("nothing"), "succeeded", within=30)
    assert len(lines(hosts, "book_slowly.hook")) == 1


def test_its_host_leaves(hosts: Hosts, jobs: Jobs) -> None:
    """Being interrupted is free, for a hook as well: it begins again elsewhere."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, "book_slowly")
    jobs.wait(job, "retrying")
    (hosts.folder / "book_slowly.hold").touch()
    cancel(jobs, job)
    until(lambda: lines(hosts, "book_slowly.hook"), within=30, what="the hook")
    assert host.stop(signal.SIGQUIT) == 5
    assert jobs.job(job)["state"] == "queued"
    (hosts.folder / "book_slowly.let").touch()
    hosts.start("two", "--slots", "1", app="cancels").ready()
    jobs.wait(job, "cancelled", within=30)
    assert len(lines(hosts, "book_slowly.hook")) == 2
    assert len(lines(hosts, "book_slowly")) == 1
