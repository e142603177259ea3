"""The main job, end to end: enqueue, run, settle, and what people see of it."""

from __future__ import annotations

import json

from tests.system.host import Hosts, Jobs
from tests.waiting import until


def test_a_job_runs_after_its_commit_and_never_after_a_rollback(hosts: Hosts, jobs: Jobs) -> None:
    """Enqueued in the caller's transaction: nothing exists before its commit."""
    hosts.start("one", "--slots", "2").ready()
    with jobs.connection.transaction(force_rollback=True):
        ghost = jobs.enqueue("add", {"a": 1, "b": 1})
    with jobs.connection.transaction():
        real = jobs.enqueue("add", {"a": 20, "b": 22})
        late = jobs.enqueue("add_later", {"a": 1, "b": 2})
    job = jobs.wait(real, "succeeded")
    assert job["result"] == {"sum": 42}
    assert (job["attempt"], job["crashes"]) == (1, 0)
    assert jobs.wait(late, "succeeded")["result"] == {"sum": 3}
    gone = jobs.connection.execute("SELECT FROM jobctl.jobs WHERE id = %s", (ghost,)).fetchall()
    assert gone == []
    jobs.nothing_is_misplaced()


def test_a_failure_is_retried_and_then_dead_with_all_that_is_known(
    hosts: Hosts, jobs: Jobs
) -> None:
    """Class, message and stack of each attempt; the attempts that the policy allows, no more."""
    hosts.start("one", "--slots", "2").ready()
    job = jobs.enqueue("fail", {"message": "no paper"}, key="print:1")
    dead = jobs.wait(job, "dead")
    assert (dead["attempt"], dead["failure_class"]) == (3, "ValueError")
    assert "no paper" in dead["last_error"]
    assert dead["first_failed_at"] < dead["last_failed_at"]
    attempts = jobs.attempts(job)
    assert [(one["attempt"], one["outcome"]) for one in attempts] == [
        (1, "failed"),
        (2, "failed"),
        (3, "failed"),
    ]
    assert "raise ValueError(message" in attempts[0]["stack"]
    assert jobs.enqueue("fail", {"message": "again"}, key="print:1") == job  # its key is held
    jobs.nothing_is_misplaced()


def test_a_permanent_error_and_an_unstorable_result_are_dead_at_once(
    hosts: Hosts, jobs: Jobs
) -> None:
    """No retry would help, so none is made, and the record says which it was."""
    hosts.start("one", "--slots", "2").ready()
    refused, odd = jobs.enqueue("refuse"), jobs.enqueue("unstorable")
    job = jobs.wait(refused, "dead")
    assert (job["attempt"], job["last_error_code"]) == (1, "NEVER")
    job = jobs.wait(odd, "dead")
    assert (job["attempt"], job["failure_class"]) == (1, "unstorable_result")


def test_a_job_whose_type_nobody_knows_waits_for_a_host_that_does(hosts: Hosts, jobs: Jobs) -> None:
    """It moves to the lane of its type, costs no attempt, and runs when a new host comes."""
    old = hosts.start("old", "--slots", "2").ready()
    job = jobs.enqueue("from_the_next_release", {})
    until(lambda: old.said("job_returned"), what="the old host to give it back")
    assert (jobs.job(job)["state"], jobs.job(job)["attempt"]) == ("queued", 0)
    newer = jobs.enqueue("add", {"a": 1, "b": 1}, schema_version=7)
    until(lambda: len(old.said("job_returned")) == 2, what="the newer arguments to go back")
    hosts.start("new", "--slots", "1", app="next_work").ready()
    assert jobs.wait(job, "succeeded")["attempt"] == 1
    assert jobs.wait(newer, "succeeded")["attempt"] == 1
    assert len(old.said("job_returned")) == 2  # no ping-pong
    jobs.nothing_is_misplaced()


def test_higher_priorities_go_first_and_nobody_starves(hosts: Hosts, jobs: Jobs) -> None:
    """A job of the lowest priority is run although there is always something better to do."""
    low = jobs.enqueue("add", {"a": 0, "b": 0})
    jobs.connection.execute(
        "SELECT count(*) FROM jobctl.enqueue_many((SELECT jsonb_agg(jsonb_build_object("
        " 'type', 'add', 'args', jsonb_build_object('a', g, 'b', 0), 'priority', 3))"
        " FROM generate_series(1, 2000) AS g))"
    )
    hosts.start("one", "--slots", "1", "--max-reserve", "0").ready()
    jobs.wait(low, "succeeded", within=60)
    row = jobs.connection.execute("SELECT count(*) AS left FROM jobctl.ready").fetchone()
    assert row is not None
    assert row["left"] > 1500  # it did not have to wait for its betters


def test_what_a_handler_prints_carries_its_slot_and_job(hosts: Hosts, jobs: Jobs) -> None:
    """Line by line, in the supervisor's own log."""
    host = hosts.start("one", "--slots", "2").ready()
    job = jobs.enqueue("die", {"name": "last words", "how": "exit"}, max_attempts=1)
    jobs.wait(job, "dead")
    lines = until(lambda: host.said("output"), what="its output")
    assert [(line["job"], line["message"]) for line in lines] == [(job, "dying by exit")]


def test_the_pages_tell_what_happened(hosts: Hosts, jobs: Jobs) -> None:
    """/metrics counts it, /livez and /readyz answer, and a drain is a reason not to be ready."""
    host = hosts.start("one", "--slots", "2").ready()
    jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
    jobs.wait(jobs.enqueue("refuse"), "dead")
    assert host.get("/livez")[0] == 200
    assert host.get("/readyz")[0] == 200
    until(lambda: 'state="dead"} 1.0' in host.get("/metrics")[1], what="the dead job to be counted")
    text = host.get("/metrics")[1]
    assert (
        'jobctl_jobs_finished_total{job_type="add",queue="default",state="succeeded"} 1.0' in text
    )
    host.ask("drain")
    status, body = host.get("/readyz")
    assert (status, json.loads(body)["reasons"]) == (503, ["draining"])
