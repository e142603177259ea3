"""Attempts without a supervisor: a real claim, and the context that a handler would be given."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jobctl.supervisor.claimed import Claimed
from jobctl.workerproc.access import Access
from jobctl.workerproc.connections import Connections
from jobctl.workerproc.context import Context, Token
from jobctl.workerproc.page import Page
from tests.claiming import Connection, claim, connect, enqueue, register, run
from tests.databases import SCHEMA

SESSION = 501


class Ground:
    """A database with a session in it, and what a slot of that session would have."""

    def __init__(self, dsn: str, connections: Connections, page: Page) -> None:
        self.dsn = dsn
        self.see: Connection = connect(dsn, {})
        self.connections = connections
        self.page = page
        register(self.see, SESSION)

    def job(self, type: str = "t", **options: Any) -> Claimed:
        """A job that has just been claimed."""
        (job,) = enqueue(self.see, type=type, **options)
        return self.claim(job)

    def claim(self, job: int, session: int = SESSION) -> Claimed:
        """This job, claimed (with all the others that are there)."""
        return {one.job_id: one for one in claim(self.see, session)}[job]

    def context(self, claimed: Claimed, seconds: float = 60.0) -> Context:
        """What the handler of this claim is given."""
        return Context(
            type=claimed.type,
            job_id=claimed.job_id,
            token=Token(claimed.session_id, claimed.token),
            deadline=time.monotonic() + seconds,
            _page=self.page,
            _connections=self.connections,
        )

    def lose(self, claimed: Claimed) -> Claimed:
        """The claim goes to somebody else, as after a lease that was over; the new claim."""
        self.see.execute("DELETE FROM claim WHERE job_id = %s", (claimed.job_id,))
        self.see.execute(
            "INSERT INTO ready (queue, priority, job_id) SELECT queue, priority, id FROM job"
            " WHERE id = %s",
            (claimed.job_id,),
        )
        return self.claim(claimed.job_id)

    def settle(self, claimed: Claimed) -> list[tuple[object, ...]]:
        """As the supervisor does when a handler has returned."""
        return run(
            self.see, "settle_succeeded", jobs=[claimed.job_id], tokens=[claimed.token],
            results=[None], steps=[None], most_bytes=None, session=claimed.session_id,
            progress="{}",
        )  # fmt: skip

    def value(self, query: str) -> object:
        row = self.see.execute(query.encode()).fetchone()
        return None if row is None else row[0]

    def effect(self, key: str) -> tuple[str, object] | None:
        """State and value of this effect's row."""
        query = "SELECT state, value FROM effect WHERE key = %s"
        row = self.see.execute(query, (key,)).fetchone()
        return None if row is None else (row[0], row[1])


@contextmanager
def ground_on(dsn: str, fresh: Sequence[str] = ()) -> Iterator[Ground]:
    """`fresh`: tables that are emptied first."""
    descriptor = Page.create("test")
    page = Page(descriptor)
    os.close(descriptor)
    connections = Connections(Access(dsn, SCHEMA, "jobctl test:1"))
    with connect(dsn, {}) as sweeper:
        for table in fresh:
            sweeper.execute(f"DELETE FROM {table}".encode())  # noqa: S608 - the test's own words
    ground = Ground(dsn, connections, page)
    try:
        yield ground
    finally:
        connections.close()
        ground.see.close()
        page.close()
