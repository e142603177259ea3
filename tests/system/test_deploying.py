"""Drain, reload and the service manager, with a real supervisor and the real commands."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.system.host import PROGRAM, Host, Hosts, Jobs, alive
from tests.system.load import deploy, prepare
from tests.waiting import until


def _jobctl(host: Host, dsn: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, typed on that host."""
    return subprocess.run(
        [*PROGRAM, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        env={**os.environ, "JOBCTL_DSN": dsn, "JOBCTL_RUNTIME_DIR": str(host.folder)},
    )  # fmt: skip


def test_another_host_is_drained_through_the_database(hosts: Hosts, jobs: Jobs) -> None:
    """Its job goes on and is listed when time is over; others take what comes; undrain ends it."""
    one = hosts.start("one", "--slots", "1").ready()
    job = jobs.enqueue("wait_for", {"name": "long"})
    until((hosts.folder / "long").exists, what="the job")
    two = hosts.start("two", "--slots", "1").ready()
    late = _jobctl(two, hosts.dsn, "drain", "--host", "one", "--wait", "--timeout", "3s")
    assert late.returncode == 124, late.stderr
    assert f"wait_for #{job} on one" in late.stderr
    until(lambda: one.said("draining"), what="the drain")
    jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
    (hosts.folder / "long.go").touch()
    ran = _jobctl(two, hosts.dsn, "drain", "--host", "one", "--wait", "--timeout", "60s", "--json")
    assert ran.returncode == 0, ran.stderr
    assert (jobs.job(job)["state"], jobs.job(job)["attempt"]) == ("succeeded", 1)
    assert one.process.poll() is None and one.state()["draining"]
    assert _jobctl(two, hosts.dsn, "undrain", "--host", "one").returncode == 0
    until(lambda: not one.state()["draining"], what="the end of the drain")


def test_a_drain_gives_back_what_has_not_started(hosts: Hosts, jobs: Jobs) -> None:
    """What was claimed ahead does not wait for the job before it, and has spent nothing."""
    one = hosts.start("one", "--slots", "1").ready()
    for _ in range(200):  # so short that more than one slot's worth is claimed ahead
        jobs.enqueue("add", {"a": 1, "b": 1})
    long = jobs.enqueue("wait_for", {"name": "long"})
    later = [jobs.enqueue("add", {"a": 1, "b": 1}) for _ in range(50)]
    until((hosts.folder / "long").exists, what="the long job")
    assert _jobctl(one, hosts.dsn, "drain").returncode == 0
    until(lambda: one.state()["reserve"] == 0, what="nothing in reserve")
    until(lambda: {jobs.job(job)["state"] for job in later} == {"queued"}, what="all to be back")
    assert {jobs.job(job)["attempt"] for job in later} == {0}
    assert jobs.job(long)["state"] == "running"
    (hosts.folder / "long.go").touch()
    jobs.wait(long, "succeeded")
    jobs.nothing_is_misplaced()


def test_a_reload_takes_the_new_code_or_says_why_not(hosts: Hosts, jobs: Jobs) -> None:
    """`jobctl reload` ends when it is decided; a busy slot follows when its job has ended."""
    prepare(hosts.folder, 1)
    one = hosts.start("one", "--slots", "2", app="busy").ready()
    job = jobs.enqueue("work", {"seconds": 2})
    until(lambda: one.state()["busy"] == 1, what="the job")
    deploy(hosts.folder, 2)
    assert _jobctl(one, hosts.dsn, "reload").returncode == 0
    waited = _jobctl(one, hosts.dsn, "reload", "--wait", "--timeout", "60s")
    assert waited.returncode == 0, waited.stderr
    assert jobs.wait(job, "succeeded")["attempt"] == 1
    (hosts.folder / "version").unlink()
    broken = _jobctl(one, hosts.dsn, "reload")
    assert broken.returncode == 1
    assert "FileNotFoundError" in broken.stderr and "the old code goes on" in broken.stderr
    jobs.wait(jobs.enqueue("work", {"seconds": 0.01}), "succeeded")
    versions = [line.split()[3] for line in (hosts.folder / "diary").read_text().splitlines()]
    assert versions == ["1", "1", "2", "2"]


def test_a_supervisor_that_stops_takes_no_new_code(hosts: Hosts, jobs: Jobs) -> None:
    """It says so, and goes on stopping."""
    one = hosts.start("one", "--slots", "1").ready()
    jobs.enqueue("wait_for", {"name": "long"})
    until((hosts.folder / "long").exists, what="the job")
    one.ask("exit")
    refused = _jobctl(one, hosts.dsn, "reload")
    assert refused.returncode == 1 and "it is stopping" in refused.stderr
    (hosts.folder / "long.go").touch()
    assert one.process.wait(timeout=30) == 0


class Manager:
    """The other end of $NOTIFY_SOCKET."""

    def __init__(self, folder: Path) -> None:
        self.environ = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "2000000"}
        self.said: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self.environ["NOTIFY_SOCKET"])

    def times(self, name: str, *words: str) -> int:
        """How often this was said, with these words in it."""
        with suppress(BlockingIOError):
            while True:
                lines = self._socket.recv(65536).decode().splitlines()
                self.said.append(dict(line.split("=", 1) for line in lines))
        return sum(name in one and all(word in one[name] for word in words) for one in self.said)

    def hears(self, name: str, *words: str, times: int = 1) -> None:
        """Returns once it has been said so often."""
        until(
            lambda: self.times(name, *words) >= times, within=60, what=f"{name} {words} x {times}"
        )

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """A service manager that only listens."""
    listening = Manager(tmp_path)
    yield listening
    listening.close()


def test_the_service_manager_hears_of_a_whole_life(
    hosts: Hosts, jobs: Jobs, manager: Manager
) -> None:
    """Ready, its words, that it supervises, a reload, the end; and nobody below it can speak."""
    one = hosts.start("one", "--slots", "1", environ=manager.environ).ready()
    manager.hears("READY")
    job = jobs.enqueue("wait_for", {"name": "long"})
    until((hosts.folder / "long").exists, what="the job")
    manager.hears("STATUS", "1 of 1 slots busy")
    for pid in one.slots().values():
        assert "NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_text()
    manager.hears("WATCHDOG", times=4)
    one.ask("reload")
    manager.hears("RELOADING")
    manager.hears("READY", times=2)
    jobs.enqueue("add", {"a": 1, "b": 1})
    one.ask("drain")
    manager.hears("STATUS", f"draining: 1 job left, the longest, wait_for #{job}, for")
    manager.hears("STATUS", "leads, 1 job due, the oldest for")
    one.ask("exit")
    manager.hears("STATUS", "stopping because of", f"more, the longest, wait_for #{job}, for")
    assert any("EXTEND_TIMEOUT_USEC" in one for one in manager.said if "STOPPING" in one)
    (hosts.folder / "long.go").touch()
    assert one.process.wait(timeout=60) == 0


def test_a_supervisor_has_started_although_postgresql_is_away(
    hosts: Hosts, manager: Manager
) -> None:
    """Else the service manager would end it, and start it again, for nothing."""
    nowhere = f"host={hosts.folder} dbname=jobctl"
    one = hosts.start("one", "--slots", "1", dsn=nowhere, environ=manager.environ)
    manager.hears("READY")
    manager.hears("STATUS", "PostgreSQL does not answer: nothing new starts; 0 of 1 slots busy")
    assert one.get("/readyz")[0] == 503


def test_an_app_that_cannot_be_imported_has_not_started(hosts: Hosts, manager: Manager) -> None:
    """The service manager waits, and then fails the start; the line says what it is."""
    hosts.start("one", "--slots", "1", app="busy", environ=manager.environ)
    manager.hears("STATUS", "not started: the application busy could not be imported: File")
    assert manager.times("READY") == 0


def test_what_the_watchdog_sends_leaves_a_stack(hosts: Hosts, jobs: Jobs) -> None:
    """SIGABRT: where the supervisor was stuck is in its log, and its slots are gone with it."""
    one = hosts.start("one", "--slots", "1").ready()
    pids = list(one.slots().values())
    one.send(signal.SIGABRT)
    assert one.process.wait(timeout=60) == -signal.SIGABRT
    said = one.log.read_text()
    assert "Fatal Python error: Aborted" in said and "supervisor.py" in said
    until(lambda: alive(pids) == [], within=30, what="the end of its slots")
