"""jobctl: `jobctl run`, one process a slot."""

from __future__ import annotations

import psycopg

import jobctl
from jobctl import Retry
from jobctl.store.migrate import migrate
from tests.compare.apps import deeds
from tests.compare.apps.desk import Record, serve
from tests.compare.apps.terms import Terms

TERMS = Terms.from_environment()


@jobctl.job(
    timeout=TERMS.limit, retry=Retry(max_attempts=TERMS.tries, min_backoff="1s", max_backoff="1s")
)
def limited(ctx: jobctl.Context, name: str, deed: str) -> None:
    deeds.perform(name, deed)


@jobctl.job
def plain(ctx: jobctl.Context, name: str, deed: str) -> None:
    deeds.perform(name, deed)


def desk() -> None:
    migrate(TERMS.dsn)
    connection = psycopg.connect(TERMS.dsn, autocommit=True)

    def enqueue(name: str, deed: str, is_limited: bool) -> str:
        job = limited if is_limited else plain
        return str(job.enqueue(connection, name=name, deed=deed))

    def look(job: str) -> Record:
        row = connection.execute("SELECT state FROM jobctl.jobs WHERE id = %s", (job,)).fetchone()
        word = row[0] if row else "gone"
        return Record(word, word in ("succeeded", "dead", "cancelled"), word == "succeeded")

    serve(enqueue, look)
