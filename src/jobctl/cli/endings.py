"""How a command ends: what it exits with, and the sentences that go with it.

The numbers are a contract with scripts and service managers. Every error that is foreseen becomes
one of them and a sentence that says what happened and what to do; what nobody foresaw keeps its
traceback, because somebody will have to mend it.
"""

from __future__ import annotations

from enum import IntEnum

import click
import psycopg

from jobctl.store.dsn import DsnError
from jobctl.store.embedded import EmbeddedError
from jobctl.store.errors import InvalidJob, JobctlError, SchemaError
from jobctl.store.rights import remedy
from jobctl.supervisor.settings_sources import SettingsError


class ExitCode(IntEnum):
    """What every command but `check` exits with."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_HEALTHY = 3
    NO_SUCH_THING = 4
    PARTLY_DONE = 5
    DATABASE_UNREACHABLE = 75
    CONFIGURATION = 78
    TIMED_OUT = 124
    INTERRUPTED = 130


class Failure(Exception):
    """A command cannot go on; it ends with this code, after these sentences."""

    def __init__(self, code: ExitCode, *sentences: str) -> None:
        self.code = code
        self.sentences = sentences
        super().__init__("\n".join(sentences))


def explain(error: BaseException) -> Failure | None:
    """The ending that an error means; None for what nobody foresaw."""
    match error:
        case Failure():
            return error
        case KeyboardInterrupt() | click.Abort():
            return Failure(ExitCode.INTERRUPTED)
        case SettingsError():
            return Failure(ExitCode.USAGE, *error.problems)
        case DsnError():
            return Failure(ExitCode.USAGE, str(error))
        case SchemaError():
            return Failure(ExitCode.CONFIGURATION, _sentence(error))
        case InvalidJob():
            return Failure(ExitCode.USAGE, _sentence(error))
        case EmbeddedError():
            return Failure(ExitCode.DATABASE_UNREACHABLE, str(error))
        case psycopg.errors.QueryCanceled():
            return Failure(
                ExitCode.FAILED,
                "PostgreSQL took too long and was asked to stop. Narrow what you ask for: "
                "--subject, --key, --state and --since are looked up by index.",
            )
        case psycopg.errors.LockNotAvailable():
            return Failure(
                ExitCode.FAILED,
                "Somebody else holds what this would change. Nothing was changed; try again.",
            )
        case psycopg.errors.InsufficientPrivilege():
            return Failure(
                ExitCode.CONFIGURATION,
                f"This database user may not do that: {first_line(error)}. Connect as one who may, "
                "an operator for what changes something. " + remedy() + ".",
            )
        case psycopg.OperationalError() | psycopg.InterfaceError():
            what = "The connection to PostgreSQL was lost"
            if error.sqlstate:  # it answered: that it is full, or shuts down
                what = "PostgreSQL cannot do it at the moment"
            return Failure(
                ExitCode.DATABASE_UNREACHABLE, f"{what}: {first_line(error)}. Try again."
            )
        case psycopg.Error():
            return Failure(
                ExitCode.FAILED, f"PostgreSQL refused: {first_line(error)} ({error.sqlstate})."
            )
        case JobctlError():
            return Failure(ExitCode.FAILED, _sentence(error))
    return None


def first_line(error: BaseException) -> str:
    """What an error says, without what libpq adds on further lines."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _sentence(error: BaseException) -> str:
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
