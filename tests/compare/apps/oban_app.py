"""oban for Python: coroutines of one process, blocking work in threads, `timeout` for the limit.

Rescue goes by the clock, whoever is alive, so its threshold must be longer than the longest job.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from oban import Job, Oban, worker
from oban.schema import install

from tests.compare.apps import deeds
from tests.compare.apps.desk import Record, serve
from tests.compare.apps.terms import Terms

TERMS = Terms.from_environment()
THREADS = ThreadPoolExecutor(64)  # hung threads are not to starve the others of threads


@worker(queue="default", max_attempts=TERMS.tries)
class Limited:
    async def process(self, job: Job) -> None:
        await _perform(job)

    def timeout(self, job: Job) -> float:
        return TERMS.limit

    def backoff(self, job: Job) -> int:
        return 1


@worker(queue="default", max_attempts=TERMS.tries)
class Plain:
    async def process(self, job: Job) -> None:
        await _perform(job)

    def backoff(self, job: Job) -> int:
        return 1


async def _perform(job: Job) -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(THREADS, deeds.perform, job.args["name"], job.args["deed"])


def desk() -> None:
    rescue = f"interval = 2.0\nrescue_after = {TERMS.slow + TERMS.stale}\n"
    (TERMS.folder / "oban.toml").write_text("[lifeline]\n" + rescue)
    with asyncio.Runner() as runner:
        pool = runner.run(_pool())
        oban = Oban(pool=pool)
        connection = psycopg.connect(TERMS.dsn, autocommit=True)

        def enqueue(name: str, deed: str, is_limited: bool) -> str:
            cls: Any = Limited if is_limited else Plain
            job = runner.run(oban.enqueue(cls.new({"name": name, "deed": deed})))
            return str(job.id)

        def look(job: str) -> Record:
            row = connection.execute(
                "SELECT state::text FROM oban_jobs WHERE id = %s", (job,)
            ).fetchone()
            word = row[0] if row else "gone"
            over = word in ("completed", "discarded", "cancelled")
            return Record(word, over, word == "completed")

        serve(enqueue, look)


async def _pool() -> Any:
    pool = await Oban.create_pool(dsn=TERMS.dsn)
    await install(pool)
    return pool
