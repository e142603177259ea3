"""Processes that die with their job: told apart in words, bounded on every path."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.host import Hosts, Jobs
from tests.waiting import until

#: How it dies, what is said of it, and the signal, if it was one.
DEATHS: dict[str, tuple[str, str | None]] = {
    "exit 0": ("exited with code 0 in the middle of a job", None),
    "exit 7": ("exited with code 7 in the middle of a job", None),
    "abort": ("killed by SIGABRT (C code gave up by itself)", "SIGABRT"),
    "fault": ("killed by SIGSEGV (a memory fault in C code)", "SIGSEGV"),
    "term": ("killed by SIGTERM in the middle of a job", "SIGTERM"),
    "kill": ("killed by SIGKILL (nobody here sent it", "SIGKILL"),
    "exec": ("execute another program in its place, /", "SIGKILL"),
    "close": ("closed its channel and went on", "SIGKILL"),
    "work": ("exited with code 3", None),
}


def test_every_death_is_told_for_what_it_was(hosts: Hosts, jobs: Jobs) -> None:
    """Reason in words, signal, peak memory, CPU and where the handler was; none is a success, and
    each costs one attempt, one crash and one slot for a moment."""
    hosts.start("one", "--slots", "3", app="rough").ready()
    every = {how: jobs.enqueue("die", {"how": how}) for how in DEATHS}
    for how, (words, signal) in DEATHS.items():
        dead = jobs.wait(every[how], "dead", within=40)
        assert (dead["failure_class"], dead["attempt"], dead["crashes"]) == ("crash", 1, 1), how
        (attempt,) = jobs.attempts(every[how])
        assert attempt["outcome"] == "crashed", how
        assert words in attempt["exit_reason"], how
        assert attempt["signal"] == signal, how
        assert attempt["started_at"] is not None and attempt["pid"] > 0, how
    (worked,) = jobs.attempts(every["work"])
    assert worked["peak_memory_bytes"] > 64 * 2**20
    assert 0.25 <= worked["cpu_seconds"] < 5
    (fault,) = jobs.attempts(every["fault"])
    assert "in die" in fault["stack"]


def test_how_far_it_had_come_is_kept_with_the_attempt(hosts: Hosts, jobs: Jobs) -> None:
    """What the job's progress said when the process died."""
    hosts.start("one", "--slots", "1", app="rough").ready()
    with jobs.connection.transaction():
        job = jobs.enqueue("die", {"how": "exit 7"})
        jobs.connection.execute(
            "UPDATE jobctl.job SET progress = %s WHERE id = %s",
            ('{"phase": "rendering", "done": 47, "total": 120}', job),
        )
    jobs.wait(job, "dead")
    (attempt,) = jobs.attempts(job)
    assert attempt["progress"] == {"phase": "rendering", "done": 47, "total": 120}


def test_a_slot_dies_while_it_boots(hosts: Hosts, jobs: Jobs) -> None:
    """No job pays for an app that cannot be imported: it waits, and the log says what happened."""
    host = hosts.start("one", "--slots", "1", app="dies_at_import")
    until(lambda: host.said("app_failed"), within=30, what="the failure")
    job = jobs.enqueue("never_born")
    failed = host.said("app_failed")[0]
    assert "exited with code 9 while it imported dies_at_import" in failed["message"]
    until(lambda: len(host.said("app_failed")) > 1, what="another try")
    assert jobs.job(job)["state"] == "queued"
    assert jobs.attempts(job) == []


def test_a_poison_job_kills_its_supervisor(hosts: Hosts, jobs: Jobs) -> None:
    """Host after host dies of it: as many runs as a slot's own death allows, then it is dead."""
    job = jobs.enqueue("kill_supervisor", {"name": "poison"})
    for _ in range(3):
        host = hosts.start("one", "--slots", "1", app="rough")
        until(lambda: host.process.poll() is not None, within=30, what="its death")  # noqa: B023
    host = hosts.start("one", "--slots", "1", app="rough").ready()
    dead = jobs.wait(job, "dead")
    assert (dead["failure_class"], dead["attempt"], dead["crashes"]) == ("lost", 3, 3)
    counted = 'jobctl_poisoned_jobs_total{job_type="kill_supervisor",queue="default"} 1.0'
    until(lambda: counted in host.get("/metrics")[1], what="the metric of poison")
    assert len((hosts.folder / "poison").read_text().splitlines()) == 3
    assert {one["outcome"] for one in jobs.attempts(job)} == {"lost"}
    jobs.nothing_is_misplaced()


@pytest.mark.slow
def test_the_reaper_ends_a_poison_job(hosts: Hosts, jobs: Jobs) -> None:
    """Hosts that never come back: whoever reaps their claims counts the crash as well."""
    job = jobs.enqueue("kill_supervisor", {"name": "poison"})
    for number in range(3):
        host = hosts.start(f"lost-{number}", "--slots", "1", "--lease", "2s", app="rough")
        until(lambda: host.process.poll() is not None, within=60, what="its death")  # noqa: B023
    hosts.start("reaper", "--slots", "1", "--lease", "2s", app="rough").ready()
    dead = jobs.wait(job, "dead", within=60)
    assert (dead["attempt"], dead["crashes"]) == (3, 3)
    assert len((hosts.folder / "poison").read_text().splitlines()) == 3


@pytest.mark.parametrize("without", [None, "crash budget"])
def test_poison_jobs_end_although_their_attempts_would_last(
    hosts: Hosts, jobs: Jobs, without: str | None
) -> None:
    """Three deaths, with ten attempts allowed; with the budget of crashes taken out they go on."""
    hosts.start("one", "--slots", "2", app="rough", without=without).ready()
    job = jobs.enqueue("poison", {"name": "poison"})
    if without is not None:
        until(lambda: len(runs(hosts)) > 3, within=30, what="the fourth run")
        return
    dead: dict[str, Any] = jobs.wait(job, "dead")
    assert (dead["attempt"], dead["crashes"]) == (3, 3)
    assert len(runs(hosts)) == 3


def runs(hosts: Hosts) -> list[str]:
    file = hosts.folder / "poison"
    return file.read_text().splitlines() if file.exists() else []
