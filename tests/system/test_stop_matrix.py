"""Every way to say stop, in every state: how it ends, how soon, and what is left of it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import psycopg
import pytest

from tests.system.host import Hosts, Jobs, alive
from tests.waiting import until

#: A stop that has nothing to wait for takes this at the most, on a busy machine.
AT_ONCE = 8.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_told_to_stop_while_nothing_runs(hosts: Hosts, jobs: Jobs, number: signal.Signals) -> None:
    """Exit 0 at once; no process, no session."""
    host = hosts.start("one", "--slots", "2", app="rough").ready()
    jobs.wait(jobs.enqueue("nothing"), "succeeded")
    assert host.stop(number, within=AT_ONCE) == 0
    nothing_is_left(hosts, jobs)


def test_told_to_stop_right_after_a_job_has_crashed(hosts: Hosts, jobs: Jobs) -> None:
    """What a death left to be written is written; nobody waits for anything else."""
    host = hosts.start("one", "--slots", "2", app="rough").ready()
    every = [jobs.enqueue("die", {"how": how}) for how in ("exit 7", "fault", "kill")]
    jobs.wait(every[0], "dead")
    assert host.stop(signal.SIGQUIT, within=AT_ONCE) in (0, 5)
    nothing_is_left(hosts, jobs)


def test_hung_up_without_a_terminal(hosts: Hosts, jobs: Jobs) -> None:
    """That is a reload: new slots, the same supervisor."""
    host = hosts.start("one", "--slots", "1", app="rough").ready()
    before = host.slots()
    host.send(signal.SIGHUP)
    until(lambda: host.slots() and host.slots() != before, what="the new generation")
    jobs.wait(jobs.enqueue("nothing"), "succeeded")
    assert host.stop(within=AT_ONCE) == 0
    nothing_is_left(hosts, jobs)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: what a person types into, and what programs have."""
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        for end in (ours, theirs):
            try:
                os.close(end)
            except OSError:
                continue


def test_ctrl_c_in_a_terminal(hosts: Hosts, jobs: Jobs, terminal: tuple[int, int]) -> None:
    """The terminal tells the whole group: the running job hears nothing and finishes."""
    host = hosts.start("one", "--slots", "2", app="rough", terminal=terminal[1]).ready()
    job = jobs.enqueue("hold", {"name": "patient"})
    until((hosts.folder / "patient").exists, what="the job")
    os.write(terminal[0], b"\x03")
    until(lambda: host.said("stopping"), what="the drain")
    (hosts.folder / "patient.go").touch()
    assert host.process.wait(AT_ONCE) == 0
    assert jobs.job(job)["state"] == "succeeded"
    assert jobs.attempts(job) == []
    nothing_is_left(hosts, jobs)


def test_the_terminal_is_closed(hosts: Hosts, jobs: Jobs, terminal: tuple[int, int]) -> None:
    """The person has gone: a drain, not a reload that nobody asked for."""
    host = hosts.start("one", "--slots", "1", app="rough", terminal=terminal[1]).ready()
    os.close(terminal[1])
    os.close(terminal[0])
    assert host.process.wait(AT_ONCE) == 0
    assert host.said("stopping")[0]["because"] == "SIGHUP"
    nothing_is_left(hosts, jobs)


def test_told_to_stop_while_the_app_is_imported(hosts: Hosts, jobs: Jobs) -> None:
    """Nobody waits for an import that may never end."""
    (hosts.folder / "slow").touch()
    host = hosts.start("one", "--slots", "2", app="slow_to_import")
    until((hosts.folder / "importing").exists, what="the import")
    assert host.stop(within=AT_ONCE) == 0
    nothing_is_left(hosts, jobs)


def test_told_to_stop_in_the_middle_of_a_reload(hosts: Hosts, jobs: Jobs) -> None:
    """The generation that is being imported goes at once, the job of the old one may finish."""
    host = hosts.start("one", "--slots", "1", app="slow_to_import").ready()
    job = jobs.enqueue("hold", {"name": "patient"})
    until((hosts.folder / "patient").exists, what="the job")
    (hosts.folder / "importing").unlink()
    (hosts.folder / "slow").touch()
    host.send(signal.SIGHUP)
    until((hosts.folder / "importing").exists, what="the reload")
    host.send(signal.SIGTERM)
    until(lambda: host.said("stopping"), what="the drain")
    (hosts.folder / "patient.go").touch()
    assert host.process.wait(AT_ONCE) == 0
    assert jobs.job(job)["state"] == "succeeded"
    nothing_is_left(hosts, jobs)


def test_told_to_stop_in_the_middle_of_a_claim(hosts: Hosts, jobs: Jobs) -> None:
    """PostgreSQL does not answer the claim, and nobody waits for it; the job is nowhere but
    queued, or comes back with the next supervisor, and has spent nothing."""
    host = hosts.start("one", "--slots", "1", app="rough").ready()
    with psycopg.connect(hosts.dsn) as locking:
        job = jobs.enqueue("nothing", delay="1 hour")
        locking.execute("LOCK TABLE jobctl.ready IN ACCESS EXCLUSIVE MODE")
        until(lambda: claims_waiting(jobs), what="a claim that waits")
        began = monotonic()
        host.send(signal.SIGTERM)
        code = host.process.wait(30)
        took = monotonic() - began
    assert code == 0, host.log.read_text()
    assert took < AT_ONCE
    assert jobs.job(job)["state"] == "scheduled"
    nothing_is_left(hosts, jobs)


@pytest.mark.parametrize("without", [None, pytest.param("patience", marks=pytest.mark.slow)])
def test_a_job_hears_no_stop(hosts: Hosts, jobs: Jobs, without: str | None) -> None:
    """Deaf, spinning in C: the drain ends at its deadline all the same, exit 5 says so, and the
    job has spent nothing."""
    host = hosts.start(
        "one", "--slots", "2", "--drain-timeout", "1s", app="rough", without=without
    ).ready()
    job = jobs.enqueue("hold_deaf", {"name": "deaf"})
    until((hosts.folder / "deaf").exists, what="the job")
    began = monotonic()
    host.send(signal.SIGTERM)
    if without is not None:
        with pytest.raises(subprocess.TimeoutExpired):
            host.process.wait(AT_ONCE)
        host.kill()
        return
    assert host.process.wait(30) == 5
    assert monotonic() - began < 1 + 5 + 2  # the drain, the grace of a kill, and two
    after = jobs.job(job)
    assert (after["state"], after["attempt"], after["crashes"]) == ("queued", 0, 0)
    assert [one["outcome"] for one in jobs.attempts(job)] == ["interrupted"]
    nothing_is_left(hosts, jobs)


def test_process_number_one_of_a_container(hosts: Hosts, jobs: Jobs) -> None:
    """No init above it: it works, reaps what handlers leave, hears TERM, leaves with its code."""
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    try:
        subprocess.run([*apart, "true"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no process can be number one here: {error}")
    host = hosts.start("one", "--slots", "2", app="rough", prefix=apart).ready()
    (first,) = children_of(host.pid)
    (pid_inside,) = jobs.connection.execute("SELECT pid FROM jobctl.session").fetchall()
    assert pid_inside == {"pid": 1}
    jobs.wait(jobs.enqueue("leave_an_orphan"), "succeeded")
    died = jobs.enqueue("die", {"how": "kill"})
    assert jobs.wait(died, "dead")["crashes"] == 1
    jobs.wait(jobs.enqueue("nothing"), "succeeded")
    until(lambda: "Z" not in states_of(children_of(first)), what="the orphan to be reaped")
    os.kill(first, signal.SIGTERM)
    assert host.process.wait(AT_ONCE) == 0
    nothing_is_left(hosts, jobs)


def test_told_to_stop_in_its_first_second(hosts: Hosts, jobs: Jobs) -> None:
    """At whatever moment: no process is left, and it is a clean stop or death by the signal."""
    for offset in range(0, 1000, 125):
        stop_at(hosts, jobs, offset / 1000)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_told_to_stop_at_every_moment_of_its_first_second(hosts: Hosts, jobs: Jobs) -> None:
    """The same every 5 ms."""
    for offset in range(0, 1000, 5):
        stop_at(hosts, jobs, offset / 1000)


def stop_at(hosts: Hosts, jobs: Jobs, seconds: float) -> None:
    name = f"at-{round(seconds * 1000)}"
    host = hosts.start(name, "--slots", "2", app="rough")
    threading.Event().wait(seconds)  # the moment is what is tested
    code = host.stop(within=AT_ONCE)
    said = host.log.read_text()
    assert code in (0, -signal.SIGTERM), (seconds, code, said)
    assert "Traceback" not in said, (seconds, said)
    nothing_is_left(hosts, jobs)


def nothing_is_left(hosts: Hosts, jobs: Jobs) -> None:
    """No process of these hosts, no session, and every job in its place."""
    until(lambda: not left_of(hosts.folder), what="all processes to be gone")
    assert jobs.connection.execute("SELECT * FROM jobctl.session").fetchall() == []
    jobs.nothing_is_misplaced()


def left_of(folder: Path) -> list[int]:
    """Processes of any host of this test."""
    mark = f"JOBCTL_TEST_FOLDER={folder}\0".encode()
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if mark in (process / "environ").read_bytes():
                    found.append(int(process.name))
            except OSError:  # gone, or somebody else's
                continue
    return alive(found)


def claims_waiting(jobs: Jobs) -> bool:
    row = jobs.connection.execute(
        "SELECT FROM pg_stat_activity WHERE application_name = 'jobctl one claim'"
        " AND wait_event_type = 'Lock'"
    ).fetchone()
    return row is not None


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def states_of(pids: list[int]) -> str:
    found = ""
    for pid in pids:
        try:
            found += Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
    return found
