"""How often a job is tried, and how long is waited in between: the policy of a type, as declared.

The shape is that of Google Cloud Tasks: `min_backoff` doubles `max_doublings` times, then grows
linearly, never above `max_backoff`. What is done with it is the supervisor's business.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobctl.store.durations import Duration, parse_duration
from jobctl.store.job_type import MOST_ATTEMPTS, MOST_DOUBLINGS


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """A retry policy. Raises ValueError, as a sentence, for one that makes no sense.

    `max_elapsed` ends retrying that long after the first attempt began. `max_crashes` counts deaths
    of the process apart from `max_attempts`, so that a poisonous job cannot kill a slot more often.
    `permanent` lists exception classes that no retry can help.
    """

    max_attempts: int = 5
    min_backoff: Duration = "10s"
    max_backoff: Duration = "1h"
    max_doublings: int = 16
    max_elapsed: Duration | None = None
    max_crashes: int = 3
    permanent: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        _whole("max_attempts", self.max_attempts, 1, MOST_ATTEMPTS)
        _whole("max_doublings", self.max_doublings, 0, MOST_DOUBLINGS)
        _whole("max_crashes", self.max_crashes, 1, MOST_ATTEMPTS)
        least, most = (
            _seconds("min_backoff", self.min_backoff),
            _seconds("max_backoff", self.max_backoff),
        )
        if least > most:
            raise ValueError(
                f"Retry: min_backoff is {least:g} s, more than max_backoff, {most:g} s: swap them "
                "or raise max_backoff"
            )
        if self.max_elapsed is not None:
            _seconds("max_elapsed", self.max_elapsed)
        if not isinstance(self.permanent, tuple):
            raise ValueError("Retry: permanent must be a tuple of exception classes: (ValueError,)")
        for kind in self.permanent:
            if not isinstance(kind, type) or not issubclass(kind, BaseException):
                raise ValueError(f"Retry: permanent must list exception classes, not {kind!r}")

    @property
    def min_backoff_seconds(self) -> float:
        """`min_backoff` in seconds."""
        return _seconds("min_backoff", self.min_backoff)

    @property
    def max_backoff_seconds(self) -> float:
        """`max_backoff` in seconds."""
        return _seconds("max_backoff", self.max_backoff)

    @property
    def max_elapsed_seconds(self) -> float | None:
        """`max_elapsed` in seconds; None: no end but `max_attempts`."""
        return None if self.max_elapsed is None else _seconds("max_elapsed", self.max_elapsed)

    def is_permanent(self, error: BaseException) -> bool:
        """Whether `error` is of a class that the type lists as permanent."""
        return isinstance(error, self.permanent)


def _whole(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(
            f"Retry: {name} must be a whole number from {least} to {most}, not {value!r:.60}"
        )


def _seconds(name: str, value: Duration) -> float:
    try:
        return parse_duration(value).total_seconds()
    except ValueError as error:
        raise ValueError(f"Retry: {name}: {error}") from None
