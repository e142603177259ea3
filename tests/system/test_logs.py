"""What a host says: a line for each attempt, and the application's own records with their job."""

from __future__ import annotations

from typing import Any

from tests.system.host import Host, Hosts, Jobs
from tests.waiting import until


def _lines(host: Host, event: str, job: int) -> list[dict[str, Any]]:
    return [line for line in host.said(event) if line["job"] == job]


def test_each_attempt_has_one_line_with_the_same_fields(hosts: Hosts, jobs: Jobs) -> None:
    """Succeeded, failed or killed; and never an argument."""
    host = hosts.start("one", "--slots", "2").ready()
    good = jobs.enqueue("add", {"a": 20, "b": 22}, key="sum:1")
    bad = jobs.enqueue("fail", {"message": "no paper"}, queue="print")
    slow = jobs.enqueue("hang", {"name": "hang"})
    jobs.wait(good, "succeeded")
    jobs.wait(bad, "dead")
    jobs.wait(slow, "dead")
    (said,) = until(lambda: _lines(host, "job_succeeded", good), what="its line")
    assert said["message"].startswith(f"add #{good} succeeded in ")
    assert (said["type"], said["queue"], said["key"]) == ("add", "default", "sum:1")
    assert (said["attempt"], said["outcome"], said["state"]) == (1, "succeeded", "succeeded")
    assert said["slot"] in (1, 2)
    assert 0 <= said["seconds"] < 60 and said["waited"] >= 0
    until(lambda: len(_lines(host, "job_ended", bad)) == 3, what="three lines")
    ended = _lines(host, "job_ended", bad)
    assert [one["attempt"] for one in ended] == [1, 2, 3]
    assert [one["state"] for one in ended] == ["retrying", "retrying", "dead"]
    assert {one["error_class"] for one in ended} == {"ValueError"}
    (killed,) = until(lambda: _lines(host, "job_ended", slow), what="its line")
    assert (killed["outcome"], killed["attempt"]) == ("timeout", 1)
    assert killed["seconds"] >= 1 and killed["peak_memory_bytes"] > 0
    assert '"a"' not in host.log.read_text()


def test_successes_can_be_left_out(hosts: Hosts, jobs: Jobs) -> None:
    """What went wrong is always said."""
    host = hosts.start("one", "--slots", "1", "--log-attempts", "unsuccessful").ready()
    jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
    refused = jobs.enqueue("refuse")
    jobs.wait(refused, "dead")
    until(lambda: _lines(host, "job_ended", refused), what="the line of the other")
    assert host.said("job_succeeded") == []


def test_very_many_successes_are_counted_and_not_said_one_by_one(hosts: Hosts, jobs: Jobs) -> None:
    """A log of ten thousand lines a second helps nobody."""
    jobs.connection.execute(
        "SELECT count(*) FROM jobctl.enqueue_many((SELECT jsonb_agg(jsonb_build_object("
        " 'type', 'add', 'args', jsonb_build_object('a', g, 'b', 0)))"
        " FROM generate_series(1, 2000) AS g))"
    )
    host = hosts.start("one", "--slots", "2").ready()
    until(
        lambda: jobs.connection.execute("SELECT FROM jobctl.job LIMIT 1").fetchone() is None,
        within=90, what="all to be done",
    )  # fmt: skip
    host.stop()
    said, unsaid = len(host.said("job_succeeded")), host.said("jobs_unsaid")
    assert said + sum(line["count"] for line in unsaid) == 2000
    assert unsaid


def test_an_application_that_has_not_set_logging_up(hosts: Hosts, jobs: Jobs) -> None:
    """Level, logger and job of every record; what looks like a credential is masked."""
    host = hosts.start("one", "--slots", "1", app="talks").ready()
    job = jobs.enqueue("talk", {"secret": "hunter2"})
    jobs.wait(job, "succeeded")
    lines = _lines(host, "logged", job)
    assert [(line["level"], line["logger"], line["message"]) for line in lines[:3]] == [
        ("info", "jobctl.job", "from the context"),
        ("warning", "shop.mail", "from a logger of its own"),
        ("error", "shop.mail", "from a thread"),
    ]
    assert lines[0]["extra_invoice"] == 1842
    assert {(line["type"], line["attempt"], line["slot"]) for line in lines} == {("talk", 1, 1)}
    assert "hunter2" not in host.log.read_text()
    assert lines[4]["message"].startswith("it failed\nand goes on\nTraceback ")
    assert lines[4]["message"].endswith("ValueError: no paper")
    assert "left out" in lines[5]["message"]
    (printed,) = _lines(host, "output", job)
    assert printed["message"] == "printed"


def test_an_application_that_has_set_logging_up_keeps_its_way(hosts: Hosts, jobs: Jobs) -> None:
    """Its handler, format and level; its records know their job, and its own words win."""
    host = hosts.start("one", "--slots", "1", app="talks_its_way").ready()
    job = jobs.enqueue("talk")
    jobs.wait(job, "succeeded")
    assert host.said("logged") == []
    printed = [line["message"] for line in _lines(host, "output", job)]
    assert printed[0] == f"DEBUG job={job} type=talk attempt=1 hello"
    assert printed[1] == "INFO job=mine type=talk attempt=1 hello again"


def test_logfmt_is_a_format_too(hosts: Hosts, jobs: Jobs) -> None:
    """One line each, whatever is in it."""
    host = hosts.start("one", "--slots", "1", "--log-format", "logfmt")
    job = jobs.enqueue("fail", {"message": "no\npaper"}, max_attempts=1)
    jobs.wait(job, "dead", within=40)
    wanted = f"event=job_ended job={job} type=fail queue=default attempt=1 "
    until(lambda: wanted in host.log.read_text(), what="its line")
    host.stop()
    for line in host.log.read_text().splitlines():
        assert line.startswith("time="), line
        assert not line.startswith("{")
