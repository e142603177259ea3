"""What this layer refuses, as sentences for the person who reads them.

Every error that jobctl raises on purpose is a `JobctlError`, here or in `workerproc.errors`, so
that one `except` can tell them from the errors of PostgreSQL and of the application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobctl.store.job_status import JobStatus


class JobctlError(Exception):
    """The base of everything that jobctl raises on purpose."""


class SchemaError(JobctlError):
    """The database does not hold the schema that this code needs. The text says what to do."""


class InvalidJob(JobctlError, ValueError):
    """A job that was not enqueued because something about it is wrong. The text says what.

    Nothing was sent when Python noticed it; when PostgreSQL did, the caller's transaction is
    aborted, as after any refused statement.
    """


class UnstorableValue(InvalidJob):
    """A value that JSON in PostgreSQL cannot hold. `path` says where in the value it is."""

    def __init__(self, what: str, path: str, why: str) -> None:
        super().__init__(f"{what} {path} {why}")
        self.what = what
        self.path = path
        self.why = why


class NoSuchJob(JobctlError, LookupError):
    """There is no job of this number, for this transaction to see. The text says what that may
    mean."""


class CannotWait(JobctlError):
    """On this connection a job would never be seen to end. The text says why, and what to do."""


class WaitTimeout(JobctlError, TimeoutError):
    """The job was not over in time; `status` is how it was when it was looked at last."""

    def __init__(self, message: str, status: JobStatus) -> None:
        super().__init__(message)
        self.status = status
