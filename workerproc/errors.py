"""What a handler may raise to say more than "failed", and what jobctl raises in one.

A plain exception means: failed, try again while the budget lasts. The first three say otherwise;
the others are raised by jobctl, at a place or a time that the handler can be ready for.
"""

from __future__ import annotations

from datetime import datetime

from jobctl.store.durations import Duration, format_duration, parse_duration
from jobctl.store.errors import JobctlError
from jobctl.workerproc.retry_after import LONGEST_RETRY_AFTER, retry_after_seconds

__all__ = [
    "AppError",
    "AppNotFound",
    "Cancelled",
    "DeclarationError",
    "JobctlError",
    "LostClaim",
    "Permanent",
    "RetryAfter",
    "Snooze",
    "SoftTimeout",
]


class Permanent(JobctlError):
    """No further attempt can help: the job goes to the dead letters at once.

    `code` is a short word for programs and filters, such as "PAYLOAD_SCHEMA_OLD".
    """

    def __init__(self, message: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class RetryAfter(JobctlError):
    """Failed, and the next attempt should come after `delay` instead of the type's backoff.

    `delay` may be what a server has said: the text of a Retry-After header, seconds or an HTTP
    date, or None where it said nothing, which means the type's backoff. It counts from `sent`, the
    text of the response's Date header, else from this host's clock. What is past means now; more
    than 30 days are cut to that, and the message says so. It spends an attempt like any failure.
    `hold_limit`: the other jobs of its limit wait as long: whoever said so meant all of us.
    Raises ValueError for what is neither a duration nor a date.
    """

    def __init__(
        self,
        delay: Duration | datetime | None,
        message: str | None = None,
        code: str | None = None,
        *,
        sent: str | datetime | None = None,
        hold_limit: bool = False,
    ) -> None:
        self.hold_limit = hold_limit
        wished = retry_after_seconds(delay, sent)
        self.seconds = wished if wished is None else min(wished, LONGEST_RETRY_AFTER)
        if self.seconds is None:
            said = message or "to be tried again"
        else:
            said = message or f"to be tried again after {format_duration(self.seconds)}"
            if wished != self.seconds:
                # A number of thousands of digits cannot even be shown.
                large = isinstance(delay, int) and delay.bit_length() > 200
                shown = "far more" if large else repr(delay)[:60]
                said += f" (it should have been {shown}: cut to 30 days)"
        super().__init__(said)
        self.code = code


class Snooze(JobctlError):
    """Not now: call the handler again after `delay`. No attempt is spent, nothing has failed.

    Raises ValueError for a delay that is not a duration.
    """

    def __init__(self, delay: Duration) -> None:
        self.seconds = parse_duration(delay).total_seconds()
        super().__init__(f"snoozed for {self.seconds:g} s")


class Cancelled(JobctlError):
    """Somebody cancelled the job. Let it through; the job then counts as cancelled."""

    def __init__(self, message: str = "the job was cancelled") -> None:
        super().__init__(message)


class LostClaim(JobctlError):
    """This attempt is no longer the one that counts: another has, or may have, begun."""


class SoftTimeout(BaseException):
    """The soft time-out of the job has come; the hard one is near.

    A BaseException, so that an `except Exception` in the handler does not take it for an error of
    the work. Tidy up and let it through.
    """


class DeclarationError(JobctlError, TypeError):
    """A job type that cannot be declared like this. The text names the function and the remedy."""


class AppNotFound(JobctlError, ModuleNotFoundError):
    """The application's module (`name`) does not exist, as against something that it imports."""


class AppError(JobctlError):
    """The application's module exists and could not be imported; the cause is attached."""
