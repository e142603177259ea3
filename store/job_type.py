"""A job type: what the newest code says about all jobs of one name.

Exactly the columns of table `job_type`. It is born at a decorator, travels from the template to
the supervisor as JSON, and lives in the database. The supervisor takes nothing from a template on
trust, so a type can only exist when every field is of its kind and in its range.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from jobctl.store.durations import LONGEST
from jobctl.store.link_template import LONGEST_URL, check_link
from jobctl.store.sizes import LARGEST

LONGEST_TIMEOUT = 365 * 86_400.0
LEAST_MEMORY = 1024 * 1024
MOST_ATTEMPTS = 1_000_000
MOST_DOUBLINGS = 64
NEWEST_VERSION = 2**31 - 1
_CENTURY = LONGEST.total_seconds()


@dataclass(frozen=True, slots=True)
class JobType:
    """What is known about a type. Raises ValueError, naming the field, when it cannot be."""

    name: str
    queue: str
    priority: int
    timeout_seconds: float
    soft_timeout_seconds: float | None
    max_attempts: int
    max_crashes: int
    min_backoff_seconds: float
    max_backoff_seconds: float
    max_doublings: int
    max_elapsed_seconds: float | None
    ack: str
    schema_version: int
    key_ttl_seconds: float | None  # None: for ever
    owner: str | None
    link: str | None
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    cancel: str = "anywhere"
    on_cancel: bool = False  # it has a hook
    limit_key: str | None = None

    def __post_init__(self) -> None:
        self._text("name", 1, 200)
        self._text("queue", 1, 100)
        self._whole("priority", 0, 3)
        self._seconds("timeout_seconds", LONGEST_TIMEOUT, above_zero=True)
        self._whole("max_attempts", 1, MOST_ATTEMPTS)
        self._whole("max_crashes", 1, MOST_ATTEMPTS)
        self._seconds("min_backoff_seconds", _CENTURY)
        self._seconds("max_backoff_seconds", _CENTURY)
        self._whole("max_doublings", 0, MOST_DOUBLINGS)
        self._whole("schema_version", 0, NEWEST_VERSION)
        if self.soft_timeout_seconds is not None:
            self._seconds("soft_timeout_seconds", LONGEST_TIMEOUT, above_zero=True)
        if self.max_elapsed_seconds is not None:
            self._seconds("max_elapsed_seconds", _CENTURY)
        if self.key_ttl_seconds is not None:
            self._seconds("key_ttl_seconds", _CENTURY)
        if self.ack not in ("late", "early"):
            raise self._wrong("ack", "must be 'late' or 'early'")
        if self.cancel not in ("anywhere", "before_commit"):
            raise self._wrong("cancel", "must be 'anywhere' or 'before_commit'")
        if type(self.on_cancel) is not bool:
            raise self._wrong("on_cancel", "must be true or false")
        if self.owner is not None:
            self._text("owner", 1, 200)
        if self.link is not None:
            self._text("link", 1, LONGEST_URL)
            try:
                check_link(self.link)
            except ValueError as error:
                raise self._wrong("link", str(error)) from None
        if self.limit_key is not None:
            self._text("limit_key", 1, 200)
            if not is_one_key(self.limit_key):
                raise self._wrong("limit_key", "must be one key: no * and no control characters")
        if self.memory_bytes is not None:
            self._whole("memory_bytes", LEAST_MEMORY, LARGEST)
        if self.cpu_seconds is not None:
            self._seconds("cpu_seconds", LONGEST_TIMEOUT, above_zero=True)
        if self.min_backoff_seconds > self.max_backoff_seconds:
            raise self._wrong("min_backoff_seconds", "is more than max_backoff_seconds")
        soft = self.soft_timeout_seconds
        if soft is not None and soft >= self.timeout_seconds:
            raise self._wrong("soft_timeout_seconds", "must be less than timeout_seconds")

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with a member per column."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: object) -> Self:
        """The type that a stranger's JSON object describes; members that it may not have, or must
        have, are a ValueError."""
        if not isinstance(given, Mapping):
            raise ValueError(f"a job type must be a JSON object, not {type(given).__name__}")
        wanted = {field.name for field in fields(cls)}
        missing = sorted(wanted - given.keys())
        if missing:
            raise ValueError(f"a job type came without {', '.join(missing)}")
        unknown = sorted(str(name)[:60] for name in given.keys() - wanted)
        if unknown:
            raise ValueError(f"a job type came with unknown members: {', '.join(unknown[:5])}")
        return cls(**given)

    def _text(self, field: str, least: int, most: int) -> None:
        value = getattr(self, field)
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise self._wrong(field, f"must be text of {least} to {most} characters")
        if "\0" in value or (not value.isascii() and _has_surrogate(value)):
            raise self._wrong(field, "holds a character that PostgreSQL cannot store")

    def _whole(self, field: str, least: int, most: int) -> None:
        value = getattr(self, field)
        if type(value) is not int or not least <= value <= most:
            raise self._wrong(field, f"must be a whole number from {least} to {most}")

    def _seconds(self, field: str, most: float, *, above_zero: bool = False) -> None:
        value = getattr(self, field)
        if type(value) is int and abs(value) <= most:
            # JSON writes 30.0 as 30 in some languages; the column is double precision.
            object.__setattr__(self, field, float(value))
        elif type(value) is not float or not math.isfinite(value):
            raise self._wrong(field, "must be a finite number of seconds")
        if not 0 <= value <= most or (above_zero and value == 0):
            least = "more than 0" if above_zero else "at least 0"
            raise self._wrong(field, f"must be {least} and at most {most:.0f} seconds")

    def _wrong(self, field: str, rule: str) -> ValueError:
        name = self.name[:60] if isinstance(self.name, str) else "?"
        shown = repr(getattr(self, field))[:80]
        return ValueError(f"job type {name!r}: {field} {rule}, it is {shown}")


def is_one_key(text: str) -> bool:
    """Whether it can be the key of a limit, as against a pattern of keys, or a slip."""
    return "*" not in text and not any(unicodedata.category(each) == "Cc" for each in text)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
