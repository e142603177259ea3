"""PostgreSQL goes away, in several ways, and comes back: nobody dies, nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic

import psycopg
import pytest

from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.migrate import migrate
from tests.servers import FAST, chosen_bindir
from tests.system.host import Host, Hosts, Jobs, jobs_of
from tests.waiting import until


@pytest.fixture
def own_server(server_roots: Path, request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, to be stopped; it keeps what it has committed."""
    server = EmbeddedPostgres(
        server_roots / f"away-{request.node.nodeid.__hash__() & 0xFFFF:x}",
        bindir=chosen_bindir(),
        settings={**FAST, "synchronous_commit": "on"},
    )
    migrate(server.start())
    try:
        yield server
    finally:
        server.destroy()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_postgresql_is_restarted_while_a_job_runs(
    own_server: EmbeddedPostgres, tmp_path: Path, how: signal.Signals
) -> None:
    """The job goes on meanwhile, is settled afterwards, and the next ones are claimed."""
    dsn = own_server.dsn()
    hosts = Hosts(dsn, tmp_path)
    try:
        host = hosts.start("one", "--slots", "2").ready()
        with jobs_of(dsn) as jobs:
            job = jobs.enqueue("wait_for", {"name": "through"})
        until((tmp_path / "through").exists, what="the job")
        pids = host.slots()
        _stop(own_server, how)
        until(lambda: host.said("database_lost"), what="the outage to be noticed")
        (tmp_path / "through.go").touch()  # it ends while nobody can be told
        until(lambda: host.state()["unwritten"] == 1, what="the job to end")
        own_server.start()
        with jobs_of(dsn) as jobs:
            assert jobs.wait(job, "succeeded")["attempt"] == 1
            jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
            jobs.nothing_is_misplaced()
        assert host.slots() == pids
    finally:
        hosts.end()


def test_the_database_stays_away_for_longer_than_the_lease(
    own_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """The host stops its own jobs before others may run them; afterwards they run again."""
    dsn = own_server.dsn()
    hosts = Hosts(dsn, tmp_path)
    try:
        host = hosts.start("one", "--slots", "2", "--lease", "3s").ready()
        with jobs_of(dsn) as jobs:
            job = jobs.enqueue("wait_for", {"name": "fenced"})
        until((tmp_path / "fenced").exists, what="the job")
        _stop(own_server, signal.SIGINT)
        until(lambda: host.said("lease_over"), what="the lease to end")
        assert not host.state()["ready"]
        until(lambda: host.state()["busy"] == 0, what="the job to be killed")
        own_server.start()
        until(lambda: len((tmp_path / "fenced").read_text().splitlines()) == 2,
              within=30, what="the second run")  # fmt: skip
        (tmp_path / "fenced.go").touch()
        with jobs_of(dsn) as jobs:
            jobs.wait(job, "succeeded")
            jobs.nothing_is_misplaced()
            first = jobs.attempts(job)[0]
        assert first["outcome"] == "interrupted"
        assert "the lease could not be renewed in time" in first["exit_reason"]
    finally:
        hosts.end()


@pytest.mark.slow
def test_postgresql_is_away_for_minutes(own_server: EmbeddedPostgres, tmp_path: Path) -> None:
    """Twice the usual lease. What ended meanwhile is written afterwards and never run again; what
    still ran is stopped before the lease is over and runs again; what waited runs; no host, no slot
    and no job is dead for it, and no attempt is spent."""
    dsn = own_server.dsn()
    hosts = Hosts(dsn, tmp_path)
    fleet: dict[str, Host] = {}
    try:
        for name in ("one", "two"):
            fleet[name] = hosts.start(name, "--slots", "2", "--lease", "60s").ready()
        with jobs_of(dsn) as jobs:
            names = ("soon", "later", "through", "also")
            running = {name: jobs.enqueue("wait_for", {"name": name}) for name in names}
            for name in names:
                until((tmp_path / name).exists, what=f"the job {name}")
            waiting = [jobs.enqueue("add", {"a": 1, "b": n}) for n in range(50)]
        slots = {name: host.slots() for name, host in fleet.items()}
        _stop(own_server, signal.SIGQUIT)
        begun = monotonic()
        _let_pass(begun, 5)
        (tmp_path / "soon.go").touch()
        _let_pass(begun, 35)  # before anything of it may be fenced
        (tmp_path / "later.go").touch()
        for host in fleet.values():
            until(partial(host.said, "lease_over"), within=60, what="the end of the lease")
        _let_pass(begun, 130)
        assert all(host.process.poll() is None for host in fleet.values())
        assert sum(host.state()["unwritten"] for host in fleet.values()) >= 2
        own_server.start()
        with jobs_of(dsn) as jobs:
            for name in ("through", "also"):
                until(partial(_ran_twice, tmp_path, name), within=120, what=f"{name} to run again")
                (tmp_path / f"{name}.go").touch()
            for job in (*running.values(), *waiting):
                assert jobs.wait(job, "succeeded", within=60)["attempt"] == 1
            assert jobs.connection.execute("SELECT FROM jobctl.dead").rowcount == 0
            lost = "SELECT FROM jobctl.attempts WHERE outcome IN ('lost', 'crashed')"
            assert jobs.connection.execute(lost).rowcount == 0
            jobs.nothing_is_misplaced()
        assert [len(_runs(tmp_path, name)) for name in names] == [1, 1, 2, 2]
        for name, host in fleet.items():
            until(partial(_has_two_slots, host), what="its slots")
            kept = set(slots[name].items()) & set(host.slots().items())
            assert len(kept) == sum(_ran_in(tmp_path, each, slots[name]) for each in names[:2])
            assert not host.said("claim_lost")
    finally:
        hosts.end()


def _let_pass(begun: float, seconds: float) -> None:
    """The outage itself: its length is what the story is about."""
    until(lambda: monotonic() > begun + seconds, within=seconds + 5, what="time to pass")


def _runs(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text().splitlines()


def _ran_twice(folder: Path, name: str) -> bool:
    return len(_runs(folder, name)) == 2


def _has_two_slots(host: Host) -> bool:
    return len(host.slots()) == 2


def _ran_in(folder: Path, name: str, slots: dict[int, int]) -> bool:
    return int(_runs(folder, name)[0].split()[2]) in slots.values()


def test_each_of_our_connections_is_terminated(hosts: Hosts, jobs: Jobs) -> None:
    """Whatever an administrator ends is opened again, and jobs go on."""
    host = hosts.start("one", "--slots", "2").ready()
    for name in ("claim", "settle", "lease", "lead"):
        backend = until(partial(_backend, jobs, name), what=f"the connection {name}")
        jobs.connection.execute("SELECT pg_terminate_backend(%s)", (backend,))
        jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
    until(lambda: host.state()["leader"], within=30, what="it to lead again")
    assert host.process.poll() is None
    jobs.nothing_is_misplaced()


def test_a_host_started_before_its_database(own_server: EmbeddedPostgres, tmp_path: Path) -> None:
    """It waits, says so, and begins when PostgreSQL is there."""
    dsn = own_server.dsn()
    own_server.stop()
    hosts = Hosts(dsn, tmp_path)
    try:
        host: Host = hosts.start("early", "--slots", "1")
        until(lambda: host.said("database_lost"), what="it to say so")
        assert host.get("/livez")[0] == 200
        assert host.get("/readyz")[0] == 503
        own_server.start()
        host.ready()
    finally:
        hosts.end()


def test_there_are_too_many_connections(own_server: EmbeddedPostgres, tmp_path: Path) -> None:
    """A host that is not let in keeps asking, and goes on when there is room."""
    own_server.stop()
    small = EmbeddedPostgres(
        own_server.root, bindir=chosen_bindir(), settings={**FAST, "max_connections": "10"}
    )
    dsn = small.start()
    others = [psycopg.connect(dsn) for _ in range(10)]
    hosts = Hosts(dsn, tmp_path)
    try:
        host = hosts.start("late", "--slots", "1")
        until(lambda: "too many clients" in str(host.said("database_lost")), what="the refusal")
        while others:
            others.pop().close()
        host.ready()
        with jobs_of(dsn) as jobs:
            jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
    finally:
        hosts.end()
        for one in others:
            one.close()


def test_the_disk_is_full(server_roots: Path, tmp_path: Path) -> None:
    """What ended meanwhile waits, whether PostgreSQL refuses or falls over, and is written."""
    with _small_disk(server_roots / "disk") as disk:
        server = EmbeddedPostgres(
            disk / "pg", bindir=chosen_bindir(), settings={**FAST, "max_wal_size": "32MB"}
        )
        migrate(server.start())
        dsn = server.dsn()
        hosts = Hosts(dsn, tmp_path)
        try:
            host = hosts.start("one", "--slots", "2").ready()
            with jobs_of(dsn) as jobs:
                job = jobs.enqueue("wait_for", {"name": "full"})
                until((tmp_path / "full").exists, what="the job")
                _fill(disk / "ballast")
                # What PostgreSQL has in reserve for itself is used up by writing.
                with pytest.raises(psycopg.Error):
                    while True:
                        jobs.enqueue("add", {"a": 1, "b": "x" * 60_000}, queue="nobody", delay="1h")
            (tmp_path / "full.go").touch()
            until(lambda: host.state()["unwritten"] == 1, what="the job to end")
            until(
                lambda: host.said("database_refused") or host.said("database_lost"),
                within=30,
                what="the refusal",
            )
            (disk / "ballast").unlink()
            server.start()  # it may have given up
            with jobs_of(dsn) as jobs:
                assert jobs.wait(job, "succeeded", within=30)["attempt"] == 1
                jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
                jobs.nothing_is_misplaced()
        finally:
            hosts.end()
            server.destroy()


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160m,mode=755", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a disk of a limited size cannot be mounted here: it takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def _fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(1 << 16))


def _stop(server: EmbeddedPostgres, how: signal.Signals) -> None:
    pid = server.pid()
    assert pid is not None
    os.kill(pid, how)
    until(lambda: server.pid() is None, within=30, what="PostgreSQL to stop")


def _backend(jobs: Jobs, name: str) -> int | None:
    row = jobs.connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'jobctl %% ' || %s", (name,)
    ).fetchone()
    return None if row is None else int(row["pid"])
