"""PgQueuer: coroutines of one process, blocking work in threads; no time limit exists.

A failed handler is retried by the executor that it has for this.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pgqueuer
from pgqueuer import AsyncpgDriver, DatabaseRetryEntrypointExecutor, Job, PgQueuer, Queries
from pgqueuer.models import JobId

from tests.compare.apps import deeds
from tests.compare.apps.desk import Record, serve
from tests.compare.apps.terms import Terms

TERMS = Terms.from_environment()
THREADS = ThreadPoolExecutor(64)  # hung threads are not to starve the others of threads


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """What a worker runs with."""
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(TERMS.dsn)))

    def retrying(parameters: Any) -> DatabaseRetryEntrypointExecutor:
        return DatabaseRetryEntrypointExecutor(
            parameters=parameters, max_attempts=TERMS.tries - 1, initial_delay=timedelta(seconds=1)
        )

    @queuer.entrypoint("limited", executor_factory=retrying, on_failure="hold")
    async def limited(job: Job) -> None:
        await _perform(job)

    @queuer.entrypoint("plain", on_failure="hold")
    async def plain(job: Job) -> None:
        await _perform(job)

    yield queuer


async def _perform(job: Job) -> None:
    asked = json.loads(job.payload or b"{}")
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(THREADS, deeds.perform, asked["name"], asked["deed"])


def work() -> None:
    asyncio.run(
        pgqueuer.run(
            main,
            batch_size=TERMS.slots // 2,
            max_concurrent_tasks=TERMS.slots,
            dequeue_timeout=timedelta(seconds=1),
            heartbeat_timeout=timedelta(seconds=TERMS.stale),
        )
    )


def desk() -> None:
    with asyncio.Runner() as runner:
        connection = runner.run(_connect())
        queries = Queries(AsyncpgDriver(connection))
        runner.run(queries.install())

        def enqueue(name: str, deed: str, is_limited: bool) -> str:
            payload = json.dumps({"name": name, "deed": deed}).encode()
            entrypoint = "limited" if is_limited else "plain"
            (job,) = runner.run(queries.enqueue([entrypoint], [payload], [0]))
            return str(job)

        def look(job: str) -> Record:
            ((_, word),) = runner.run(queries.job_status([JobId(int(job))])) or [(0, "gone")]
            over = word in ("successful", "exception", "failed", "canceled", "deleted", "gone")
            return Record(word, over, word == "successful")

        serve(enqueue, look)


async def _connect() -> Any:
    return await asyncpg.connect(TERMS.dsn)
