"""PgBouncer in transaction mode: good for those who enqueue, refused where it would do harm."""

from __future__ import annotations

import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import jobctl
from jobctl.cli import execute
from jobctl.store.account import Account
from jobctl.store.cluster import PORT, ROLE
from jobctl.store.embedded import EmbeddedPostgres
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
            until((run / f".s.PGSQL.{PORT}").exists, what="pgbouncer")
            return f"postgresql://{ROLE}@/{name}?host={run}&port={PORT}"

        try:
            yield start
        finally:
            for process in processes:
                process.kill()
                process.wait()


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
