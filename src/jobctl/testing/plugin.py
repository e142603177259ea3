"""Fixtures for an application's tests; pytest finds them by itself once jobctl is installed.

The database is one that the tests may use: JOBCTL_TEST_DSN, or an embedded PostgreSQL that lives as
long as the run. jobctl's tables are in a schema of their own there, which is empty when a test
begins and gone when the run ends, so nothing that anybody needs is ever touched.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

    from jobctl.testing.draining import Drained
    from jobctl.testing.enqueued import Enqueued
    from jobctl.workerproc.job import Job


class Queue:
    """The queues of one test. `dsn` is of their database, `schema` is where they are in it."""

    def __init__(self, dsn: str, schema: str, conn: psycopg.Connection[Any]) -> None:
        self.dsn = dsn
        self.schema = schema
        #: In autocommit; for a test that has no connection of its own.
        self.conn = conn

    def drain(self, **options: Any) -> list[Drained]:
        """Runs what is due; see `jobctl.testing.drain`."""
        from jobctl.testing import drain

        return drain(self.dsn, **options)

    def enqueued(self, job: Job[..., Any] | str | None = None) -> list[Enqueued]:
        """What is there and has not ended."""
        from jobctl.testing import enqueued

        return enqueued(self.conn, job)

    def assert_enqueued(self, job: Job[..., Any] | str, **expected: Any) -> list[Enqueued]:
        """Asserts that a job was enqueued and committed; see `jobctl.testing.assert_enqueued`."""
        from jobctl.testing import assert_enqueued

        return assert_enqueued(self.conn, job, **expected)

    def state(self, job_id: int) -> str | None:
        """Where a job stands; None: there is no such job."""
        from jobctl.store import callers

        statement = callers.in_schema("testing_state")
        rows = callers.run(self.conn, statement, {"id": job_id})
        return rows[0][0] if rows else None


#: Nothing in it outlives the run, so nothing need wait for a disk.
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session")
def jobctl_dsn() -> Iterator[str]:
    """The DSN of a PostgreSQL for tests: JOBCTL_TEST_DSN, else an embedded one. Redefine it to use
    your own."""
    given = os.environ.get("JOBCTL_TEST_DSN")
    if given:
        yield given
        return
    from jobctl.store.embedded import EmbeddedPostgres

    folder = Path(tempfile.mkdtemp(prefix="jobctl-"))
    try:
        if os.geteuid() == 0:
            folder.chmod(0o755)  # root's servers run as another user, who must come through
        server = EmbeddedPostgres(folder / "pg", settings=_FAST)
        server.start()
        try:
            yield server.dsn()
        finally:
            server.destroy()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def jobctl_schema(jobctl_dsn: str) -> Iterator[str]:
    """A migrated schema of this run's own, which is where enqueue finds it; dropped at the end."""
    import psycopg
    from psycopg import sql

    from jobctl.store.migrate import migrate

    schema = f"jobctl_test_{uuid.uuid4().hex[:12]}"
    migrate(jobctl_dsn, schema)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JOBCTL_SCHEMA", schema)
        yield schema
    with psycopg.connect(jobctl_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


@pytest.fixture
def jobctl_queue(jobctl_dsn: str, jobctl_schema: str) -> Iterator[Queue]:
    """Empty queues: enqueue on a connection to `jobctl_queue.dsn`, or on `jobctl_queue.conn`."""
    import psycopg

    with psycopg.connect(jobctl_dsn, autocommit=True) as conn:
        _empty(conn, jobctl_schema)
        yield Queue(jobctl_dsn, jobctl_schema, conn)


def _empty(conn: psycopg.Connection[Any], schema: str) -> None:
    from psycopg import sql

    rows = conn.execute(
        "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = %s::regnamespace"
        " AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> 'migration'",
        (sql.Identifier(schema).as_string(conn),),
    ).fetchall()
    names = sql.SQL(", ").join(sql.Identifier(schema, name) for (name,) in rows)
    conn.execute(sql.SQL("TRUNCATE {}").format(names))
