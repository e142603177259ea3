"""PgBouncer in transaction mode: good for those who enqueue, refused where it would do harm."""

from __future__ import annotations

import asyncio
import pwd
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import jobctl
from jobctl.cli import execute
from jobctl.store.account import Account
from jobctl.store.cluster import PORT, ROLE
from jobctl.store.embedded import EmbeddedPostgres
from tests.network import Proxy
from tests.servers import guarded_folder
from tests.system.host import Hosts, Jobs
from tests.waiting import until

PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")

pytestmark = pytest.mark.skipif(
    PGBOUNCER is None, reason="there is no pgbouncer here (Debian: apt-get install pgbouncer)"
)


@pytest.fixture
def pooled(postgres: EmbeddedPostgres, database: str) -> Iterator[Callable[[str], str]]:
    """Starts a pooler with more configuration and returns the DSN through it."""
    processes = []
    with guarded_folder() as folder:

        def start(more: str = "") -> str:
            account = Account.for_server(postgres.cluster.data)
            name = conninfo_to_dict(database)["dbname"]
            run = folder / "pool"
            account.give_folder(run)
            ini = folder / "pgbouncer.ini"
            ini.write_text(
                f"[databases]\n{name} = host={postgres.cluster.run} port={PORT} user={ROLE}\n"
                f"[pgbouncer]\nlisten_port = {PORT}\nunix_socket_dir = {run}\nauth_type = any\n"
                f"pool_mode = transaction\nlogfile = {run}/log\n{more}\n"
            )
            ini.chmod(0o644)
            processes.append(_spawn(account, ini))
            until(lambda: _listens(run / f".s.PGSQL.{PORT}"), what="pgbouncer")
            return f"postgresql://{ROLE}@/{name}?host={run}&port={PORT}"

        try:
            yield start
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _listens(path: Path) -> bool:
    """The socket is there a moment before anybody listens at it."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _spawn(account: Account, ini: Path) -> subprocess.Popen[bytes]:
    assert PGBOUNCER is not None
    user = pwd.getpwuid(account.uid).pw_name if account.borrowed else None
    group = account.gid if account.borrowed else None
    return subprocess.Popen(
        [PGBOUNCER, "-q", ini], user=user, group=group, cwd="/", stdout=subprocess.DEVNULL
    )


def test_jobs_are_enqueued_through_a_pooler(
    pooled: Callable[[str], str], hosts: Hosts, jobs: Jobs
) -> None:
    """Each transaction may meet another server, and nothing that a driver prepared is there."""
    dsn = pooled("default_pool_size = 2")
    first, second = psycopg.connect(dsn), psycopg.connect(dsn)
    with closing(first), closing(second):
        made = []
        for _ in range(12):
            made.append(jobctl.enqueue(first, "add", {"a": 1, "b": 2}))
            made.append(jobctl.enqueue(second, "add", {"a": 1, "b": 2}))
            first.commit()
            second.commit()
    hosts.start("one", "--slots", "1")
    for job in made:
        jobs.wait(job, "succeeded")


def test_what_became_of_a_job_is_asked_through_a_pooler(
    pooled: Callable[[str], str], database: str
) -> None:
    """By asyncpg as well, which is told to prepare nothing; and cancelled, and waited for."""
    dsn = pooled("default_pool_size = 2")
    words = conninfo_to_dict(dsn)

    async def story() -> None:
        one = await asyncpg.connect(
            host=words["host"], port=int(str(words["port"])), user=words["user"],
            database=words["dbname"], statement_cache_size=0,
        )  # fmt: skip
        try:
            for _ in range(5):
                async with one.transaction():
                    job = await jobctl.aenqueue(one, "add", {"a": 1, "b": 2}, delay="1h")
                assert (await jobctl.aget(one, job)).state == "scheduled"
                assert await jobctl.acancel(one, job) == "cancelled"
                assert (await jobctl.await_(one, job, timeout="5s")).state == "cancelled"
        finally:
            await one.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "more",
    ["", "ignore_startup_parameters = options,extra_float_digits"],
    ids=["strict", "lenient"],
)
def test_a_supervisor_refuses_to_work_through_a_pooler(
    pooled: Callable[[str], str], hosts: Hosts, more: str
) -> None:
    """It says what is wrong and what to do, and no restart by systemd would help: 78."""
    hosts.dsn = pooled(more)
    host = hosts.start("one", "--slots", "1")
    assert host.process.wait(timeout=30) == 78
    (refusal,) = host.said("configuration_refused")
    assert "DSN of PostgreSQL itself" in refusal["error"]


@pytest.mark.parametrize(
    ("more", "code"),
    [("", 75), ("ignore_startup_parameters = options,extra_float_digits", 3)],
    ids=["strict", "lenient"],
)
def test_doctor_says_that_a_pooler_is_between(
    pooled: Callable[[str], str], capsys: pytest.CaptureFixture[str], more: str, code: int
) -> None:
    """Also where the pooler lets it in: then nothing else that it would say could be trusted."""
    assert execute(["doctor", "--dsn", pooled(more)]) == code
    printed = capsys.readouterr()
    assert "DSN of PostgreSQL itself" in printed.out + printed.err


@pytest.mark.slow  # it waits for a lease to be over
def test_a_pooler_comes_between_the_leader_and_its_database(
    pooled: Callable[[str], str],
    postgres: EmbeddedPostgres,
    database: str,
    hosts: Hosts,
    jobs: Jobs,
    tmp_path: Path,
) -> None:
    """As when an address is given to one in the middle of the day. The first connection through it
    ends leadership, nothing keeps the lock, the host says what is wrong and leaves, and what it ran
    may end; another one leads."""
    lenient = pooled("ignore_startup_parameters = options,extra_float_digits")
    name = str(conninfo_to_dict(database)["dbname"])
    with guarded_folder() as folder:
        way = Proxy(folder / "way", postgres.cluster.socket)
        try:
            host = hosts.start("one", "--slots", "1", "--lease", "6s", dsn=way.dsn(name)).ready()
            until(lambda: host.state()["leader"], within=30, what="it to lead")
            job = jobs.enqueue("wait_for", {"name": "through"})
            until((tmp_path / "through").exists, what="the job")
            way.switch(Path(str(conninfo_to_dict(lenient)["host"])) / f".s.PGSQL.{PORT}")
            until(lambda: host.said("not_leading"), within=10, what="the end of leadership")
            until(lambda: host.said("configuration_refused"), within=30, what="the refusal")
            refused = host.said("configuration_refused")[0]["error"]
            assert "through a connection pooler" in refused
            assert "DSN of PostgreSQL itself" in refused
            locks = "SELECT FROM pg_locks WHERE locktype = 'advisory'"
            assert jobs.connection.execute(locks).rowcount == 0
            other = hosts.start("two", "--slots", "1", "--lease", "6s").ready()
            until(lambda: other.state()["leader"], within=30, what="the other to lead")
            (tmp_path / "through.go").touch()
            assert host.process.wait(timeout=60) == 78
            jobs.wait(job, "succeeded", within=60)
        finally:
            hosts.end()
            way.close()
