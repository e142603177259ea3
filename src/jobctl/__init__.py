"""jobctl: background jobs on PostgreSQL. This file is the list of public names, nothing else."""

from importlib.metadata import PackageNotFoundError, version

from jobctl.store.enqueue import aenqueue, aenqueue_many, enqueue, enqueue_many
from jobctl.store.errors import (
    CannotWait,
    InvalidJob,
    JobctlError,
    NoSuchJob,
    SchemaError,
    UnstorableValue,
    WaitTimeout,
)
from jobctl.store.job_status import JobStatus
from jobctl.store.outside import (
    acancel,
    aget,
    areplay,
    await_,
    cancel,
    get,
    replay,
    wait,
)
from jobctl.workerproc.chain import chain
from jobctl.workerproc.context import Context, Token
from jobctl.workerproc.cron import cron
from jobctl.workerproc.effect import Effect
from jobctl.workerproc.errors import (
    Cancelled,
    DeclarationError,
    LostClaim,
    Permanent,
    RetryAfter,
    Snooze,
    SoftTimeout,
)
from jobctl.workerproc.job import Job, job
from jobctl.workerproc.publication import published
from jobctl.workerproc.records import LogHandler
from jobctl.workerproc.retry import Backoff, Retry

try:
    __version__ = version("pgjobctl")
except PackageNotFoundError:  # a checkout that nobody has installed
    __version__ = "0+unknown"

__all__ = [
    "Backoff",
    "Cancelled",
    "CannotWait",
    "Context",
    "DeclarationError",
    "Effect",
    "InvalidJob",
    "Job",
    "JobStatus",
    "JobctlError",
    "LogHandler",
    "LostClaim",
    "NoSuchJob",
    "Permanent",
    "Retry",
    "RetryAfter",
    "SchemaError",
    "Snooze",
    "SoftTimeout",
    "Token",
    "UnstorableValue",
    "WaitTimeout",
    "__version__",
    "acancel",
    "aenqueue",
    "aenqueue_many",
    "aget",
    "areplay",
    "await_",
    "cancel",
    "chain",
    "cron",
    "enqueue",
    "enqueue_many",
    "get",
    "job",
    "published",
    "replay",
    "wait",
]
