"""Where a tracer is told of enqueues. Nobody is, unless the application has asked for it.

What travels with a job is one W3C `traceparent`, in the job's own row: which span enqueued it. The
span itself, and everything about spans, is `jobctl.otel`'s, which puts its function here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from jobctl.store.new_job import NewJob

#: Around one call that enqueues: given its jobs, gives the traceparent that they carry, if any.
Producer = Callable[[Sequence[NewJob]], AbstractContextManager[str | None]]

producer: Producer | None = None
