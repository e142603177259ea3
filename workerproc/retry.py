"""How often a job is tried, and how long is waited in between: the policy of a type, as declared.

The shape is that of Google Cloud Tasks: `min_backoff` doubles `max_doublings` times, then grows
linearly, never above `max_backoff`. What holds for all failures of a type is the supervisor's
business; what holds for some classes of errors is decided where the classes are known, in the slot.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from jobctl.store.backoff import Chance, backoff_seconds
from jobctl.store.durations import Duration, parse_duration
from jobctl.store.job_type import MOST_ATTEMPTS, MOST_DOUBLINGS


@dataclass(frozen=True, kw_only=True, slots=True)
class Backoff:
    """How failures of some class are waited for, in `Retry(per_class={...})`.

    `min`, `max` and `doublings` are the words of Retry's backoff. `max_attempts` makes the job dead
    earlier than its type's would: at that attempt, whatever the ones before it failed of. Raises
    ValueError, as a sentence, for one that makes no sense.
    """

    min: Duration = "10s"
    max: Duration = "1h"
    doublings: int = 16
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        _whole("doublings", self.doublings, 0, MOST_DOUBLINGS, "Backoff")
        if self.max_attempts is not None:
            _whole("max_attempts", self.max_attempts, 1, MOST_ATTEMPTS, "Backoff")
        least, most = _seconds("min", self.min, "Backoff"), _seconds("max", self.max, "Backoff")
        if least > most:
            raise ValueError(
                f"Backoff: min is {least:g} s, more than max, {most:g} s: swap them or raise max"
            )

    def seconds(self, failures: int, chance: Chance = random.random) -> float:
        """How long to wait after the `failures`-th failed attempt, from 1."""
        least, most = _seconds("min", self.min), _seconds("max", self.max)
        return backoff_seconds(least, most, self.doublings, failures, chance)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says of one error: no retry helps, or how long to wait; None: as the type."""

    permanent: bool = False
    delay_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """A retry policy. Raises ValueError, as a sentence, for one that makes no sense.

    `max_elapsed` ends retrying that long after the first attempt began. `max_crashes` counts deaths
    of the process apart from `max_attempts`, so that a poisonous job cannot kill a slot more often.
    `permanent` lists exception classes that no retry can help. `per_class` says of others how long
    to wait for them: `{RateLimited: Backoff(min="1m", max="1h")}`. As with `except`, a class stands
    for its children too, and the first that fits counts.
    """

    max_attempts: int = 5
    min_backoff: Duration = "10s"
    max_backoff: Duration = "1h"
    max_doublings: int = 16
    max_elapsed: Duration | None = None
    max_crashes: int = 3
    permanent: tuple[type[BaseException], ...] = ()
    per_class: Mapping[type[BaseException], Backoff] = field(default_factory=dict, hash=False)

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
        self._check_classes()

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

    def verdict(
        self, error: BaseException, attempt: int, chance: Chance = random.random
    ) -> Verdict:
        """What is said of this error of the attempt of this number, from 1."""
        if self.is_permanent(error):
            return Verdict(permanent=True)
        for kind, backoff in self.per_class.items():
            if isinstance(error, kind):
                most = backoff.max_attempts
                if most is not None and attempt >= most:
                    return Verdict(permanent=True)
                return Verdict(delay_seconds=backoff.seconds(attempt, chance))
        return Verdict()

    def _check_classes(self) -> None:
        if not isinstance(self.per_class, Mapping):
            raise ValueError(
                "Retry: per_class must be a dict of exception classes: "
                '{ConnectionError: Backoff(min="1m")}'
            )
        for kind, backoff in self.per_class.items():
            if not isinstance(kind, type) or not issubclass(kind, BaseException):
                raise ValueError(f"Retry: per_class is of exception classes, not of {kind!r:.60}")
            if not isinstance(backoff, Backoff):
                raise ValueError(
                    f"Retry: per_class of {kind.__name__} must be a jobctl.Backoff, "
                    f"not {backoff!r:.60}"
                )
            if issubclass(kind, self.permanent):
                raise ValueError(
                    f"Retry: {kind.__name__} is permanent and has a backoff: choose one of them"
                )
            if backoff.max_attempts is not None and backoff.max_attempts > self.max_attempts:
                raise ValueError(
                    f"Retry: {kind.__name__} may fail {backoff.max_attempts} times, more than the "
                    f"max_attempts of all, {self.max_attempts}: raise that"
                )
        # The caller's dict may change; a policy does not.
        object.__setattr__(self, "per_class", MappingProxyType(dict(self.per_class)))


def _whole(name: str, value: object, least: int, most: int, of: str = "Retry") -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(
            f"{of}: {name} must be a whole number from {least} to {most}, not {value!r:.60}"
        )


def _seconds(name: str, value: Duration, of: str = "Retry") -> float:
    try:
        return parse_duration(value).total_seconds()
    except ValueError as error:
        raise ValueError(f"{of}: {name}: {error}") from None
