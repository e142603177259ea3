"""What every test may ask for: a server, a migrated database, an empty one.

Nothing is mocked: the server is a real PostgreSQL, one a run, started when the first
test asks for it. JOBCTL_TEST_PG_BINDIR chooses its programs.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobctl.store.embedded import EmbeddedPostgres
from tests.databases import MigratedDatabase, empty_database
from tests.servers import FAST, chosen_bindir, guarded_folder

# Of the developer's own settings only these reach the tests.
KEPT_SETTINGS = ("JOBCTL_PG_BINDIR", "JOBCTL_TEST_PG_BINDIR")


@pytest.fixture(scope="session", autouse=True)
def _signals_are_as_in_a_terminal() -> None:
    """A shell that starts the run with & has it ignore Ctrl-C, and so would what tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        for name in os.environ:
            foreign = name.startswith(("PG", "JOBCTL_")) or name == "DATABASE_URL"
            if foreign and name not in KEPT_SETTINGS:
                environment.delenv(name)
        yield


@pytest.fixture(scope="session")
def server_roots() -> Iterator[Path]:
    """A folder for the roots of servers; all of them are stopped and removed at the end."""
    with guarded_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def postgres(server_roots: Path) -> EmbeddedPostgres:
    """The PostgreSQL server of this run."""
    server = EmbeddedPostgres(server_roots / "tests", bindir=chosen_bindir(), settings=FAST)
    server.start()
    return server


@pytest.fixture(scope="session")
def _migrated(postgres: EmbeddedPostgres) -> Iterator[MigratedDatabase]:
    database = MigratedDatabase(postgres)
    yield database
    database.close()


@pytest.fixture
def database(_migrated: MigratedDatabase) -> str:
    """The DSN of a migrated database without a job, or anybody else, in it."""
    _migrated.clean()
    return _migrated.dsn


@pytest.fixture
def fresh_database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The DSN of a new database in which nobody has migrated anything."""
    with empty_database(postgres) as dsn:
        yield dsn
