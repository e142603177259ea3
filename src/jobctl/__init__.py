"""jobctl: background jobs on PostgreSQL. This file is the list of public names, nothing else."""

from importlib.metadata import PackageNotFoundError, version

from jobctl.store.enqueue import aenqueue, aenqueue_many, enqueue, enqueue_many
from jobctl.store.errors import InvalidJob, JobctlError, SchemaError, UnstorableValue
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
from jobctl.workerproc.retry import Backoff, Retry

try:
    __version__ = version("pgjobctl")
except PackageNotFoundError:  # a checkout that nobody has installed
    __version__ = "0+unknown"

__all__ = [
    "Backoff",
    "Cancelled",
    "Context",
    "DeclarationError",
    "Effect",
    "InvalidJob",
    "Job",
    "JobctlError",
    "LostClaim",
    "Permanent",
    "Retry",
    "RetryAfter",
    "SchemaError",
    "Snooze",
    "SoftTimeout",
    "Token",
    "UnstorableValue",
    "__version__",
    "aenqueue",
    "aenqueue_many",
    "chain",
    "cron",
    "enqueue",
    "enqueue_many",
    "job",
]
