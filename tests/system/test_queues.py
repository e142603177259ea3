"""Paused queues: hosts stop claiming at once, also those that start later; others go on."""

from __future__ import annotations

from jobctl.store import queues, reading
from jobctl.store.operating import Order
from tests.system.host import Hosts, Jobs
from tests.waiting import until


def test_a_paused_queue_is_left_alone_across_restarts_until_it_is_resumed(
    hosts: Hosts, jobs: Jobs, database: str
) -> None:
    """What runs goes on; what waits waits; other queues do not notice; no attempt is spent."""
    ann = Order("ann@ops")
    one = hosts.start("one", "--slots", "2").ready()
    runs = jobs.enqueue("wait_for", {"name": "first"}, queue="mail")
    until(lambda: jobs.job(runs)["state"] == "running", what="the first job to run")
    with reading.connect(database, "jobctl") as operator:
        assert queues.pause(operator, ["mail"], ann) == ["mail"]
        held = [jobs.enqueue("add", {"a": 1, "b": n}, queue="mail") for n in range(20)]
        for number in range(5):  # each takes the way that the held ones would have taken
            jobs.wait(jobs.enqueue("add", {"a": 1, "b": number}), "succeeded")
        (hosts.folder / "first.go").touch()
        jobs.wait(runs, "succeeded")
        one.stop()
        hosts.start("two", "--slots", "2").ready()
        jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
        assert {(jobs.job(one)["state"], jobs.job(one)["attempt"]) for one in held} == {
            ("queued", 0)
        }
        assert queues.resume(operator, ["mail"], ann) == ["mail"]
    for one_held in held:
        assert jobs.wait(one_held, "succeeded")["attempt"] == 1
    jobs.nothing_is_misplaced()
