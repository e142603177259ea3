"""RQ: `rq worker` processes that fork a work-horse for each job; SIGALRM, then kill from outside.

One worker a slot, as its documentation has it for systemd, with its intervals lowered.
"""

from __future__ import annotations

from redis import Redis
from rq import Queue, Retry
from rq.job import Job

from tests.compare.apps import deeds
from tests.compare.apps.desk import Record, serve
from tests.compare.apps.terms import Terms

TERMS = Terms.from_environment()


def desk() -> None:
    redis = Redis.from_url(TERMS.redis)
    queue = Queue(connection=redis)

    def enqueue(name: str, deed: str, is_limited: bool) -> str:
        if is_limited:
            job = queue.enqueue(
                deeds.perform,
                name,
                deed,
                job_timeout=int(TERMS.limit),
                retry=Retry(max=TERMS.tries - 1, interval=1),
            )
        else:
            job = queue.enqueue(
                deeds.perform, name, deed, job_timeout=600, retry=Retry(max=TERMS.tries - 1)
            )
        return str(job.id)

    def look(job: str) -> Record:
        found = Job.fetch(job, connection=redis)
        word = str(found.get_status().value)
        return Record(
            word, word in ("finished", "failed", "stopped", "canceled"), word == "finished"
        )

    serve(enqueue, look)
