"""A booted systemd, and the shipped unit in it with a database to work on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from jobctl.store.embedded import EmbeddedPostgres
from tests.network import Proxy
from tests.system.host import APPS, Jobs, jobs_of
from tests.systemd.machine import HERE, Impossible, Machine, machine
from tests.systemd.unit import Unit

UNITS = HERE / "systemd"

#: The jobs of tests/system, and some that belong to these stories.
APP = """
import work
import jobctl
from jobctl import Retry

@jobctl.job
def version(ctx):
    return {"version": VERSION}

@jobctl.job
def speak(ctx):
    import socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(b"STATUS=said by a job\\nSTOPPING=1", "/run/systemd/notify")

@jobctl.job(retry=Retry(max_attempts=1))
def devour(ctx):
    eaten = []
    while True:
        eaten.append(bytearray(8 << 20))

VERSION = 1
"""


@pytest.fixture(scope="session")
def booted() -> Iterator[Machine]:
    """One machine for all stories. Skips where there can be none."""
    try:
        with machine() as running:
            running.run("systemd-sysusers", "/opt/jobctl/code/systemd/jobctl.sysusers")
            yield running
    except Impossible as why:
        pytest.skip(f"no systemd can be booted: {why}")


@pytest.fixture
def network(postgres: EmbeddedPostgres, booted: Machine) -> Iterator[Proxy]:
    """The way from the machine to PostgreSQL: a socket in the folder that both see."""
    folder = booted.shared / "pg"
    proxy = Proxy(folder, postgres.cluster.socket)
    folder.chmod(0o755)
    next(folder.iterdir()).chmod(0o666)
    try:
        yield proxy
    finally:
        proxy.close()
        shutil.rmtree(folder)


@pytest.fixture
def dsn_inside(network: Proxy) -> Callable[[str], str]:
    """A DSN of the test's server, as it reads in the machine."""

    def inside(dsn: str) -> str:
        here = network.dsn(str(conninfo_to_dict(dsn)["dbname"]))
        return here.replace(str(network.folder), "/srv/test/pg")

    return inside


@pytest.fixture
def unit(booted: Machine, database: str, dsn_inside: Callable[[str], str]) -> Iterator[Unit]:
    """jobctl.service as it is shipped, set up as its first lines say, not yet started."""
    shared = booted.shared
    for name in ("app", "meet"):
        (shared / name).mkdir()
    (shared / "meet").chmod(0o777)
    shutil.copy(APPS / "work.py", shared / "app")
    (shared / "app" / "shop.py").write_text(APP)
    for path in UNITS.glob("*.service"):
        booted.write(f"/etc/systemd/system/{path.name}", path.read_text())
    booted.write("/etc/jobctl/dsn", dsn_inside(database) + "\n", 0o600)
    booted.write("/etc/jobctl/jobctl.toml", 'app = "shop"\nslots = 2\n')
    mine = Unit(booted, "jobctl.service")
    mine.drop_in(
        "Environment=JOBCTL_TEST_FOLDER=/srv/test/meet", "ReadWritePaths=/srv/test",
        "RestartSec=100ms",
    )  # fmt: skip
    try:
        yield mine
    finally:
        mine.forget()
        for name in ("app", "meet"):
            shutil.rmtree(shared / name)


@pytest.fixture
def meet(booted: Machine, unit: Unit) -> Path:
    """Where handlers and the test meet."""
    return booted.shared / "meet"


@pytest.fixture
def jobs(database: str) -> Iterator[Jobs]:
    """The test's own connection."""
    with jobs_of(database) as mine:
        yield mine


def pytest_report_header() -> str:
    return f"systemd: tests of the booted one {'run' if os.geteuid() == 0 else 'need root'}"
