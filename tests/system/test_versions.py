"""Arguments of several versions while old and new code run: each job meets code that reads it."""

from __future__ import annotations

from tests.system.host import Host, Hosts, Jobs
from tests.waiting import until


def start(hosts: Hosts, name: str, version: int) -> Host:
    environ = {"JOBCTL_TEST_VERSION": str(version)}
    return hosts.start(name, "--slots", "1", app="versions", environ=environ).ready()


def test_a_deploy_and_its_way_back(hosts: Hosts, jobs: Jobs) -> None:
    """New code gets old jobs, upgraded; old code does not get new ones: they wait in plain sight
    for a host that reads them, and old ones go on meanwhile."""
    old = start(hosts, "old", 1)
    jobs.wait(jobs.enqueue("resize", {"size": 1}), "succeeded")
    left = jobs.enqueue("resize", {"size": 2}, delay="1 hour")  # of version 1
    new = start(hosts, "new", 3)
    assert old.stop() == 0
    jobs.connection.execute("UPDATE jobctl.scheduled SET run_at = now()")
    assert jobs.wait(left, "succeeded")["result"] == {"version": 3, "width": 2, "unit": "px"}
    assert new.stop() == 0
    # The way back: what the new code has enqueued cannot be read now.
    old = start(hosts, "old", 1)
    ahead = jobs.enqueue("resize", {"width": 4, "unit": "cm"}, schema_version=3)
    between = jobs.enqueue("resize", {"width": 5}, schema_version=2)
    today = jobs.enqueue("resize", {"size": 6}, schema_version=1)
    assert jobs.wait(today, "succeeded")["result"] == {"version": 1, "size": 6}
    lanes = "SELECT job_id, lane FROM jobctl.ready ORDER BY job_id"
    until(
        lambda: [tuple(row.values()) for row in jobs.connection.execute(lanes).fetchall()]
        == [(ahead, "type:resize@3"), (between, "type:resize@2")],
        within=30, what="them to wait in their lanes",
    )  # fmt: skip
    assert jobs.job(ahead)["attempt"] == 0
    start(hosts, "new", 3)
    assert jobs.wait(ahead, "succeeded", within=30)["result"] == {
        "version": 3, "width": 4, "unit": "cm",
    }  # fmt: skip
    assert jobs.wait(between, "succeeded", within=30)["result"] == {
        "version": 3, "width": 5, "unit": "px",
    }  # fmt: skip


def test_an_upgrade_fails(hosts: Hosts, jobs: Jobs) -> None:
    """Permanently, with a class that says so and a sentence that says from where to where."""
    start(hosts, "one", 3)
    job = jobs.enqueue("resize", {"spoil": True}, schema_version=1)
    dead = jobs.wait(job, "dead")
    assert (dead["failure_class"], dead["attempt"]) == ("upgrade_failed", 1)
    assert "from version 1 to 3: KeyError" in dead["last_error"]
