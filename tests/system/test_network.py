"""The way to PostgreSQL is bad, or it ends at the wrong server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from jobctl.store.embedded import EmbeddedPostgres
from tests.network import Proxy, Weather
from tests.servers import guarded_folder
from tests.standby import Pair
from tests.system.host import Hosts, Jobs, jobs_of
from tests.waiting import until


@pytest.fixture
def network(postgres: EmbeddedPostgres, database: str) -> Iterator[Proxy]:
    """Between hosts and the test's server; the test's own connection does not use it."""
    with guarded_folder() as folder:
        proxy = Proxy(folder / "net", postgres.cluster.socket)
        try:
            yield proxy
        finally:
            proxy.close()


@pytest.fixture
def far(network: Proxy, database: str, tmp_path: Path) -> Iterator[Hosts]:
    """Hosts behind that network."""
    name = conninfo_to_dict(database)["dbname"]
    hosts = Hosts(network.dsn(str(name)), tmp_path)
    try:
        yield hosts
    finally:
        network.change(Weather.FAIR)
        hosts.end()


def test_a_black_hole_that_still_acknowledges(far: Hosts, jobs: Jobs, network: Proxy) -> None:
    """Only a clock of our own sees it. The job goes on, and nobody waits for ever."""
    host = far.start("one", "--slots", "2", "--lease", "20s").ready()
    job = jobs.enqueue("wait_for", {"name": "hole"})
    until((far.folder / "hole").exists, what="the job")
    network.change(Weather.BLACK_HOLE)
    until(lambda: host.said("database_lost"), within=30, what="it to be noticed")
    network.change(Weather.FAIR)
    (far.folder / "hole.go").touch()
    assert jobs.wait(job, "succeeded", within=30)["attempt"] == 1
    assert not host.said("lease_over")
    jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")


def test_the_answer_to_a_commit_is_lost(far: Hosts, jobs: Jobs, network: Proxy) -> None:
    """What was written is written once, and recognised when it is written again."""
    host = far.start("one", "--slots", "2", "--lease", "20s").ready()
    # A statement is prepared when it is first used, and what cannot be prepared is never sent.
    (far.folder / "before.go").touch()
    jobs.wait(jobs.enqueue("wait_for", {"name": "before"}), "succeeded")
    job = jobs.enqueue("wait_for", {"name": "deaf"})
    until((far.folder / "deaf").exists, what="the job")
    network.change(Weather.DEAF)
    (far.folder / "deaf.go").touch()
    jobs.wait(job, "succeeded")
    assert host.state()["unwritten"] == 1  # as far as the host knows
    network.change(Weather.FAIR)
    until(lambda: host.state()["unwritten"] == 0, within=30, what="it to ask again")
    assert not host.said("claim_lost")
    assert jobs.attempts(job) == []
    # Claims that were made and whose answers were lost do not wait for the lease's end.
    jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
    jobs.nothing_is_misplaced()


def test_a_slow_network(far: Hosts, jobs: Jobs, network: Proxy) -> None:
    """Everything takes longer, and nothing else changes."""
    network.change(Weather.FAIR, delay=0.1)
    host = far.start("one", "--slots", "2", "--lease", "3s").ready()
    several = [jobs.enqueue("add", {"a": 1, "b": 1}) for _ in range(30)]
    for job in several:
        assert jobs.wait(job, "succeeded")["attempt"] == 1
    assert not host.said("lease_over")
    assert not host.said("database_lost")


def test_nobody_is_let_in_for_a_while(far: Hosts, jobs: Jobs, network: Proxy) -> None:
    """A host asks again ever more seldom: hundreds of them must not finish a server that limps."""
    far.start("one", "--slots", "1").ready()
    before = len(network.arrivals)
    network.change(Weather.REFUSING)
    until(lambda: len(network.arrivals) >= before + 18, within=60, what="it to ask again")
    times = network.arrivals[before:]
    assert times[8] - times[0] < times[17] - times[9]
    assert _in_the_worst_second(times) <= 18
    network.change(Weather.FAIR)
    jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")


def test_a_server_that_may_only_be_read(jobs: Jobs, far: Hosts, network: Proxy) -> None:
    """As after a switch-over, when the address leads to what is a standby now: the connection is
    given up, although it works; and not a hundred times a second."""
    far.dsn += "&target_session_attrs=any"
    host = far.start("one", "--slots", "1", "--lease", "6s").ready()
    read_only = "ALTER DATABASE {} SET default_transaction_read_only = {}"
    name = jobs.connection.info.dbname
    jobs.connection.execute(read_only.format(name, "on").encode())
    try:
        before = len(network.arrivals)
        network.cut()  # a new session is what a database's setting reaches
        until(lambda: "read-only" in str(host.said("database_lost")), what="it to be noticed")
        until(lambda: len(network.arrivals) >= before + 15, within=60, what="it to ask again")
        assert _in_the_worst_second(network.arrivals[before:]) <= 18
    finally:
        jobs.connection.execute("SET transaction_read_only = off")
        jobs.connection.execute("SET default_transaction_read_only = off")
        jobs.connection.execute(read_only.format(name, "off").encode())
    jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
    jobs.connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())


def test_the_primary_dies_and_its_standby_takes_over(tmp_path: Path) -> None:
    """The DSN names both. The job that runs meanwhile is settled on the new one, once."""
    with guarded_folder() as folder:
        pair = Pair(folder / "pair")
        hosts = Hosts(pair.dsn(), tmp_path)
        try:
            host = hosts.start("one", "--slots", "2").ready()
            with jobs_of(pair.primary.dsn()) as jobs:
                before = jobs.enqueue("add", {"a": 1, "b": 1})
                jobs.wait(before, "succeeded")
                job = jobs.enqueue("wait_for", {"name": "through"})
                until((tmp_path / "through").exists, what="the job")
            pair.stop_primary(signal.SIGQUIT)
            (tmp_path / "through.go").touch()
            until(lambda: host.state()["unwritten"] == 1, what="the job to end")
            pair.promote()
            with jobs_of(pair.primary.dsn()) as jobs:
                assert jobs.wait(job, "succeeded")["attempt"] == 1
                assert jobs.job(before)["state"] == "succeeded"
                jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
                until(lambda: host.state()["leader"], within=30, what="it to lead again")
                jobs.nothing_is_misplaced()
        finally:
            hosts.end()
            pair.destroy()


def _in_the_worst_second(times: list[float]) -> int:
    return max(sum(1 for other in times if 0 <= other - at <= 1) for at in times)


def test_the_proxy_is_what_it_says(network: Proxy, database: str) -> None:
    """A test of a network that lets everything through proves nothing."""
    dsn = network.dsn(str(conninfo_to_dict(database)["dbname"]))
    network.change(Weather.REFUSING)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
    network.change(Weather.BLACK_HOLE)
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        psycopg.connect(dsn, connect_timeout=2)
    network.change(Weather.FAIR)
    with psycopg.connect(dsn) as connection:
        network.cut()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
