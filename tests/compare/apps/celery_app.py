"""Celery on Redis: prefork processes, a soft limit before the hard one.

In two ways: as it comes (a task is acknowledged when it starts), and with what its documentation
has for tasks that must not be lost with their process: `acks_late` and
`task_reject_on_worker_lost`.
"""

from __future__ import annotations

from celery import Celery
from celery.result import AsyncResult

from tests.compare.apps import deeds
from tests.compare.apps.desk import Record, serve
from tests.compare.apps.terms import Terms

TERMS = Terms.from_environment()

app = Celery("compare", broker=TERMS.redis, backend=TERMS.redis)
app.conf.update(
    worker_concurrency=TERMS.slots,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    task_track_started=True,
    task_acks_late=TERMS.late_ack,
    task_reject_on_worker_lost=TERMS.late_ack,
    # The only rescue there is; it must be longer than the longest task, or that runs twice.
    broker_transport_options={"visibility_timeout": TERMS.slow + TERMS.stale},
)


@app.task(
    name="limited",
    soft_time_limit=TERMS.limit * 0.8,
    time_limit=TERMS.limit,
    autoretry_for=(Exception,),
    max_retries=TERMS.tries - 1,
    default_retry_delay=1,
)
def limited(name: str, deed: str) -> None:
    deeds.perform(name, deed)


@app.task(name="plain")
def plain(name: str, deed: str) -> None:
    deeds.perform(name, deed)


def desk() -> None:
    def enqueue(name: str, deed: str, is_limited: bool) -> str:
        task = limited if is_limited else plain
        return str(task.delay(name, deed).id)

    def look(job: str) -> Record:
        word = str(AsyncResult(job, app=app).state)
        return Record(word, word in ("SUCCESS", "FAILURE", "REVOKED"), word == "SUCCESS")

    serve(enqueue, look)
