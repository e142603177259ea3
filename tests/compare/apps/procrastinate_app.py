"""Procrastinate: plain functions run in threads of one worker process; no time limit exists.

Stalled jobs are retried by the periodic task that its documentation gives, every five seconds.
"""

from __future__ import annotations

from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector, RetryStrategy, SyncPsycopgConnector

from tests.compare.apps import deeds
from tests.compare.apps.desk import Record, serve
from tests.compare.apps.terms import Terms

TERMS = Terms.from_environment()

app = App(
    connector=PsycopgConnector(conninfo=TERMS.dsn, max_size=TERMS.slots + 8),
    worker_defaults={
        "concurrency": TERMS.slots,
        "fetch_job_polling_interval": 1.0,
        "update_heartbeat_interval": TERMS.stale / 3,
        "stalled_worker_timeout": TERMS.stale,
        "shutdown_graceful_timeout": TERMS.limit,
    },
)


@app.task(name="limited", retry=RetryStrategy(max_attempts=TERMS.tries - 1, wait=1))
def limited(name: str, deed: str) -> None:
    deeds.perform(name, deed)


@app.task(name="plain")
def plain(name: str, deed: str) -> None:
    deeds.perform(name, deed)


@app.periodic(cron="* * * * * */5")
@app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
async def retry_stalled_jobs(context: Any, timestamp: int) -> None:
    stalled = await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=TERMS.stale)
    for job in stalled:
        await app.job_manager.retry_job(job)


def desk() -> None:
    client = App(connector=SyncPsycopgConnector(conninfo=TERMS.dsn))
    connection = psycopg.connect(TERMS.dsn, autocommit=True)
    client.open()
    client.schema_manager.apply_schema()

    def enqueue(name: str, deed: str, is_limited: bool) -> str:
        task = "limited" if is_limited else "plain"
        return str(client.configure_task(task).defer(name=name, deed=deed))

    def look(job: str) -> Record:
        row = connection.execute(
            "SELECT status::text FROM procrastinate_jobs WHERE id = %s", (job,)
        ).fetchone()
        word = row[0] if row else "gone"
        over = word in ("succeeded", "failed", "cancelled", "aborted")
        return Record(word, over, word == "succeeded")

    serve(enqueue, look)
