"""Where a tracer is told of attempts. Nobody is, unless the application has asked for it.

Its counterpart for enqueues is `store/tracing.py`; `jobctl.otel` puts its functions into both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobctl.workerproc.frames import Job

#: Given an attempt and the handler that is to be called for it, gives what is called instead.
Consumer = Callable[[Job, Callable[..., Any]], Callable[..., Any]]

consumer: Consumer | None = None
