"""ack="early": whatever happens, the handler has begun at most once."""

from __future__ import annotations

import os
import signal

import pytest

from tests.system.host import Hosts, Jobs
from tests.system.test_cancel import begun, cancel, lines
from tests.waiting import until


def is_dead(jobs: Jobs, job: int, failure_class: str) -> None:
    row = jobs.wait(job, "dead", within=60)
    assert row["failure_class"] == failure_class
    jobs.nothing_is_misplaced()


def test_it_succeeds(hosts: Hosts, jobs: Jobs) -> None:
    """Like any other; and a failure is final, until an operator runs it again."""
    hosts.start("one", "--slots", "1", app="cancels").ready()
    (hosts.folder / "good.go").touch()
    job = begun(hosts, jobs, "once", "good")
    assert jobs.wait(job, "succeeded")["result"] == "once"
    for name in ("bad.go", "bad.spoil"):
        (hosts.folder / name).touch()
    job = begun(hosts, jobs, "once", "bad")
    is_dead(jobs, job, "ValueError")
    (hosts.folder / "bad.spoil").unlink()
    assert jobs.connection.execute("SELECT jobctl.replay(%s)", (job,)).fetchall()
    jobs.wait(job, "succeeded", within=30)
    assert len(lines(hosts, "bad")) == 2


@pytest.mark.parametrize(("how", "failure_class"), [("slot", "crash"), ("drain", "interrupted")])
def test_it_is_ended_in_the_middle(hosts: Hosts, jobs: Jobs, how: str, failure_class: str) -> None:
    """Killed or interrupted, it is dead: nobody knows how far it came."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, "once")
    (slot,) = host.slots().values()
    if how == "slot":
        os.kill(slot, signal.SIGKILL)
    else:
        assert host.stop(signal.SIGQUIT) == 5
        (stopped,) = host.said("stopped")
        assert (stopped["interrupted"], stopped["queued_again"]) == (1, 0)
    is_dead(jobs, job, failure_class)
    assert len(lines(hosts, "once")) == 1


@pytest.mark.slow  # it waits for a lease to be over
@pytest.mark.parametrize("without", [None, pytest.param("early mark", marks=pytest.mark.slow)])
def test_its_host_dies(hosts: Hosts, jobs: Jobs, without: str | None) -> None:
    """Dead, with the class lost. Without the mark nobody knows that it has begun: it runs twice."""
    host = hosts.start("one", "--slots", "1", "--lease", "2s", app="cancels", without=without)
    host.ready()
    job = begun(hosts, jobs, "once")
    host.kill()
    hosts.start("two", "--slots", "1", "--lease", "2s", app="cancels").ready()
    if without is None:
        is_dead(jobs, job, "lost")
        assert len(lines(hosts, "once")) == 1
    else:
        until(lambda: len(lines(hosts, "once")) == 2, within=60, what="the second run")


def test_its_host_dies_between_the_mark_and_the_start(hosts: Hosts, jobs: Jobs) -> None:
    """It never began, and nobody can know that: it is dead, and has not run."""
    host = hosts.start("one", "--slots", "1", "--lease", "2s", app="cancels").ready()
    (slot,) = host.slots().values()
    os.kill(slot, signal.SIGSTOP)
    job = jobs.enqueue("once", {"name": "once"})
    marked = "SELECT FROM jobctl.claim WHERE job_id = %s AND marked"
    until(lambda: jobs.connection.execute(marked, (job,)).fetchall(), within=30, what="the mark")
    host.kill()
    hosts.start("two", "--slots", "1", "--lease", "2s", app="cancels").ready()
    is_dead(jobs, job, "lost")
    assert lines(hosts, "once") == []


@pytest.mark.slow  # it waits for a lease to be over
def test_it_was_not_marked(hosts: Hosts, jobs: Jobs) -> None:
    """Its host dies before the mark is written, so it has certainly not begun: it runs, once."""
    host = hosts.start("one", "--slots", "1", "--lease", "2s", app="cancels").ready()
    # What is claimed cannot be marked: whoever writes claims is stopped where the mark would be.
    jobs.connection.execute("""
        CREATE FUNCTION jobctl.hold_up() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_sleep(20); RETURN NULL; END';
        CREATE TRIGGER hold_up BEFORE UPDATE OF marked ON jobctl.claim
            FOR EACH ROW EXECUTE FUNCTION jobctl.hold_up();
    """)
    try:
        job = jobs.enqueue("once", {"name": "once"})
        jobs.wait(job, "running")
        host.kill()
        jobs.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        )
    finally:
        jobs.connection.execute("DROP TRIGGER hold_up ON jobctl.claim")
        jobs.connection.execute("DROP FUNCTION jobctl.hold_up()")
    (hosts.folder / "once.go").touch()
    hosts.start("two", "--slots", "1", "--lease", "2s", app="cancels").ready()
    jobs.wait(job, "succeeded", within=60)
    assert len(lines(hosts, "once")) == 1


def test_its_slot_dies_before_it_begins(hosts: Hosts, jobs: Jobs) -> None:
    """It was given to a slot, which may have begun it: dead, not handed back."""
    host = hosts.start("one", "--slots", "1", app="cancels").ready()
    (slot,) = host.slots().values()
    os.kill(slot, signal.SIGSTOP)
    job = jobs.enqueue("once", {"name": "once"})
    until(
        lambda: any(one["stage"] == "busy" for one in host.state()["slots"]),
        within=30, what="the slot to have it",
    )  # fmt: skip
    assert host.stop(signal.SIGQUIT) in (0, 5)
    is_dead(jobs, job, "lost")
    assert lines(hosts, "once") == []


def test_it_is_cancelled(hosts: Hosts, jobs: Jobs) -> None:
    """Like any other: before it is claimed at once, by force while it runs."""
    hosts.start("one", "--slots", "1", app="cancels").ready()
    job = begun(hosts, jobs, "once")
    waiting = jobs.enqueue("once", {"name": "waiting"})
    assert cancel(jobs, waiting) == "cancelled"
    assert cancel(jobs, job, force_after=0.0) == "cancel_requested"
    jobs.wait(job, "cancelled", within=30)
    assert lines(hosts, "waiting") == []
