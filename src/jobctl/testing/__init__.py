"""jobctl.testing: what an application's own tests need of jobctl. This file lists the public names.

Nothing here is a mock: a handler runs under the code that runs it in a slot, and a queue is drained
out of a real PostgreSQL by the statements that a supervisor uses. Only the process is the test's.
"""

from jobctl.testing.crashing import Crash, crashes
from jobctl.testing.draining import Drained, drain
from jobctl.testing.enqueued import Enqueued, assert_enqueued, enqueued
from jobctl.testing.inline import Ran, attempt, run

__all__ = [
    "Crash",
    "Drained",
    "Enqueued",
    "Ran",
    "assert_enqueued",
    "attempt",
    "crashes",
    "drain",
    "enqueued",
    "run",
]
