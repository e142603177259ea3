"""What this layer refuses, as sentences for the person who reads them.

Every error that jobctl raises on purpose is a `JobctlError`, here or in `workerproc.errors`, so
that one `except` can tell them from the errors of PostgreSQL and of the application.
"""

from __future__ import annotations


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
