"""Wall clocks are set, forward and back, of a host and of the database; and a loop stands still."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from jobctl.store import binaries
from jobctl.store.account import Account
from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.migrate import migrate
from tests.servers import FAST, chosen_bindir, guarded_folder
from tests.system.host import Host, Hosts, Jobs, jobs_of
from tests.waiting import until

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)

needs_faketime = pytest.mark.skipif(
    FAKETIME is None, reason="there is no libfaketime here (Debian: apt-get install faketime)"
)


class Clock:
    """The wall clock of whatever is started with `environ`; no other clock is touched."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set("+0")
        self.environ = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }

    def set(self, offset: str) -> None:
        """Read anew at each look, so it must be whole at each moment."""
        new = self._file.with_suffix(".new")
        new.write_text(offset)
        new.chmod(0o644)
        new.rename(self._file)


@needs_faketime
def test_the_clock_of_a_host_is_set(hosts: Hosts, jobs: Jobs, tmp_path: Path) -> None:
    """Nothing rests on it: no lease ends, no job is late, and no date is wrong."""
    clock = Clock(tmp_path / "clock")
    host = hosts.start("one", "--slots", "2", "--lease", "3s", environ=clock.environ).ready()
    for offset in ("-1d", "+1d", "-20y"):
        pipe = tmp_path / f"{offset}.pipe"
        os.mkfifo(pipe)
        # Not one that sleeps: libfaketime does not know how to wait by the monotonic clock.
        job = jobs.enqueue("wait_at_a_pipe", {"name": offset})
        until((tmp_path / offset).exists, what="the job")
        clock.set(offset)
        later = jobs.enqueue("add", {"a": 1, "b": 1}, delay="100ms")
        failing = jobs.enqueue("fail", {"message": "no"})
        jobs.wait(later, "succeeded")
        jobs.wait(failing, "dead")
        pipe.write_text("go")
        assert jobs.wait(job, "succeeded")["attempt"] == 1
        row = jobs.connection.execute(
            "SELECT count(*) AS n FROM jobctl.attempts WHERE job_id = %s"
            " AND started_at BETWEEN now() - interval '1 min' AND now()"
            " AND ended_at BETWEEN now() - interval '1 min' AND now()",
            (failing,),
        ).fetchone()
        assert row == {"n": 3}
    assert not host.said("lease_over")
    assert not host.said("session_lost")


@pytest.fixture
def clocked() -> Iterator[tuple[EmbeddedPostgres, Clock]]:
    """A server with a clock of its own."""
    with guarded_folder() as folder:
        clock = Clock(folder / "clock")
        real = _enterable(folder)
        programs = folder / "programs"
        programs.mkdir(mode=0o755)
        for program in real.iterdir():
            (programs / program.name).symlink_to(program)
        words = " ".join(f"{name}={value}" for name, value in clock.environ.items())
        wrapper = programs / "postgres"
        wrapper.unlink()
        wrapper.write_text(f'#!/bin/sh\nexec env {words} {real}/postgres "$@"\n')
        wrapper.chmod(0o755)
        server = EmbeddedPostgres(folder / "pg", bindir=programs, settings=FAST)
        migrate(server.start())
        yield server, clock


def _enterable(folder: Path) -> Path:
    """PostgreSQL's programs, where the server's user can start them."""
    chosen = chosen_bindir()
    programs = binaries.at(chosen, "the tests") if chosen else binaries.find()
    account = Account.for_server(folder / "pg" / "data")
    if account.may_enter(programs.program("postgres")):
        return programs.bindir
    return programs.copied_below(folder).bindir


@needs_faketime
def test_the_clock_of_the_database_is_set(
    clocked: tuple[EmbeddedPostgres, Clock], tmp_path: Path
) -> None:
    """Forward: every lease seems to be over, and nobody is reaped for it. Back: no lease of the
    future keeps a dead host's jobs."""
    server, clock = clocked
    hosts = Hosts(server.dsn(), tmp_path)
    try:
        several = [
            hosts.start(name, "--slots", "1", "--lease", "3s").ready() for name in ("one", "two")
        ]
        with jobs_of(server.dsn()) as jobs:
            until(lambda: _leader(several), within=30, what="a leader")
            running = [jobs.enqueue("wait_for", {"name": name}) for name in ("a", "b")]
            for name in ("a", "b"):
                until((tmp_path / name).exists, what="the jobs")
            for times, offset in enumerate(("+1h", "-1h"), start=1):
                clock.set(offset)
                until(
                    lambda times=times: _times_set(several) == times,  # type: ignore[misc]
                    within=30,
                    what="it to be noticed",
                )
                until(lambda: _leases_are_right(jobs), what="the leases to be renewed")
            for name in ("a", "b"):
                (tmp_path / f"{name}.go").touch()
            for job in running:
                assert jobs.wait(job, "succeeded")["attempt"] == 1
                assert jobs.attempts(job) == []
        assert not any(host.said("sessions_expired") for host in several)
    finally:
        hosts.end()


def test_the_loop_stands_still_while_a_job_ends(hosts: Hosts, jobs: Jobs) -> None:
    """By the time it looks, the deadline is long over; but the job had ended before."""
    host = hosts.start("one", "--slots", "1").ready()
    job = jobs.enqueue("wait_for", {"name": "gap"}, timeout="1s")
    until((hosts.folder / "gap").exists, what="the job")
    host.send(signal.SIGSTOP)
    begun = monotonic()
    (hosts.folder / "gap.go").touch()
    until(lambda: monotonic() > begun + 1.5, what="its deadline")
    host.send(signal.SIGCONT)
    assert jobs.wait(job, "succeeded")["attempt"] == 1
    assert jobs.attempts(job) == []


def _leader(hosts: list[Host]) -> bool:
    return any(host.state()["leader"] for host in hosts)


def _times_set(hosts: list[Host]) -> int:
    return sum(len(host.said("clock_set")) for host in hosts)


def _leases_are_right(jobs: Jobs) -> bool:
    row = jobs.connection.execute(
        "SELECT bool_and(NOT dead AND renewed_at <= clock_timestamp()"
        " AND expires_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '3 s') AS good"
        " FROM jobctl.session"
    ).fetchone()
    return row is not None and bool(row["good"])
