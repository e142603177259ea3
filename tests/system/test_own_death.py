"""kill -9 of a supervisor, and two of one name."""

from __future__ import annotations

from tests.system.host import Hosts, Jobs, alive
from tests.waiting import until


def test_two_seconds_after_a_kill_nothing_of_it_is_left(hosts: Hosts, jobs: Jobs) -> None:
    """No process, no database session, no leader's lock; and what a job had put aside in a session
    of its own is gone at the latest when the next supervisor starts."""
    host = hosts.start("one", "--slots", "2").ready()
    jobs.enqueue("leave_behind", {"name": "parent"})
    until((hosts.folder / "parent").exists, what="the job")
    child = int((hosts.folder / "parent.child").read_text())
    until(lambda: host.state()["leader"], within=30, what="it to lead")
    assert _sessions(jobs) >= 3
    assert _locks(jobs) == 1
    slots = list(host.slots().values())
    host.kill()
    until(
        lambda: not alive(slots) and _sessions(jobs) == 0 and _locks(jobs) == 0,
        within=2,
        what="everything of it to be gone",
    )
    again = hosts.start("two", "--host", "one", "--slots", "2").ready()
    assert not alive([child])
    until(lambda: again.state()["leader"], within=30, what="it to lead")


def test_two_supervisors_of_one_name(hosts: Hosts, jobs: Jobs) -> None:
    """Each has a session of its own. When one is dead, a third knows which of the two it was."""
    first = hosts.start("twin", "--slots", "1").ready()
    jobs_first = jobs.enqueue("wait_for", {"name": "a"})
    until((hosts.folder / "a").exists, what="the first job")
    second = hosts.start("twin-2", "--host", "twin", "--slots", "1").ready()
    assert not second.said("earlier_sessions_dead")
    jobs_second = jobs.enqueue("wait_for", {"name": "b"})
    until((hosts.folder / "b").exists, what="the second job")
    first.kill()
    third = hosts.start("twin-3", "--host", "twin", "--slots", "1").ready()
    until(lambda: len(_runs(hosts, "a")) == 2, what="the first job to run again")
    assert [one["count"] for one in third.said("earlier_sessions_dead")] == [1]
    for name in ("a", "b"):
        (hosts.folder / f"{name}.go").touch()
    assert jobs.wait(jobs_first, "succeeded")["attempt"] == 2
    assert jobs.wait(jobs_second, "succeeded")["attempt"] == 1
    assert len(_runs(hosts, "b")) == 1
    assert not second.said("session_lost")
    jobs.nothing_is_misplaced()


def _runs(hosts: Hosts, name: str) -> list[str]:
    return (hosts.folder / name).read_text().splitlines()


def _sessions(jobs: Jobs) -> int:
    ours = "SELECT FROM pg_stat_activity WHERE application_name LIKE 'jobctl %'"
    return jobs.connection.execute(ours).rowcount


def _locks(jobs: Jobs) -> int:
    return jobs.connection.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'").rowcount
