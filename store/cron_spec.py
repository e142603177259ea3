"""A cron as somebody declares it: which job, when, and what about firings that were missed.

It is born at a decorator, in `jobctl.toml` or on the command line, travels as JSON and lives as
`definition` in the tables `cron_declaration` and `cron_entry`. Nothing in it is anybody's state.
As with a job type, nobody takes one on trust: it exists only when every field is in its range.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from jobctl.store.durations import Duration, parse_duration
from jobctl.store.errors import InvalidJob
from jobctl.store.job_type import NEWEST_VERSION
from jobctl.store.new_job import new_job
from jobctl.store.schedule import Schedule

MISFIRES = ("skip", "once", "all")
OVERLAPS = ("allow", "skip")
ORIGINS = ("code", "file", "database")
#: What a cron without a `misfire_limit` makes up for at most.
MISFIRE_LIMIT = 100
LARGEST_MISFIRE_LIMIT = 1_000
LONGEST_JITTER = 86_400.0
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class CronSpec:
    """Raises ValueError, naming the cron and the field, when it cannot be."""

    name: str
    type: str
    schedule: str
    tz: str = "UTC"
    args: Mapping[str, Any] = field(default_factory=dict)
    schema_version: int | None = None  # None: what the type's newest code says
    misfire: str = "skip"
    misfire_limit: int = MISFIRE_LIMIT
    jitter_seconds: float = 0.0
    overlap: str = "allow"
    origin: str = "code"

    def __post_init__(self) -> None:
        self._text("name", LONGEST_NAME)
        self._text("type", 200)
        self._text("schedule", 200)
        self._text("tz", 100)
        self._word("misfire", MISFIRES)
        self._word("overlap", OVERLAPS)
        self._word("origin", ORIGINS)
        limit, jitter, version = self.misfire_limit, self.jitter_seconds, self.schema_version
        if type(limit) is not int or not 1 <= limit <= LARGEST_MISFIRE_LIMIT:
            raise self._wrong(f"misfire_limit must be 1 to {LARGEST_MISFIRE_LIMIT}, not {limit!r}")
        if isinstance(jitter, bool) or not isinstance(jitter, int | float):
            raise self._wrong(f"jitter must be a duration, not {jitter!r:.60}")
        if not math.isfinite(jitter) or not 0 <= jitter <= LONGEST_JITTER:
            raise self._wrong("jitter must be at most a day")
        object.__setattr__(self, "jitter_seconds", float(jitter))
        if version is not None and (type(version) is not int or not 0 <= version <= NEWEST_VERSION):
            raise self._wrong(f"schema_version must be a whole number, not {version!r:.60}")
        if not isinstance(self.args, Mapping):
            raise self._wrong(f"args must be an object of arguments, not {self.args!r:.60}")
        try:
            text = new_job(self.type, self.args).text
            # As the database will give it back: a tuple is a list from now on.
            object.__setattr__(self, "args", json.loads(text)["args"])
            Schedule(self.schedule, self.tz)
        except (ValueError, InvalidJob) as error:
            raise self._wrong(str(error)) from None

    @property
    def moments(self) -> Schedule:
        """When it fires."""
        return Schedule(self.schedule, self.tz)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object: the name beside what is stored as `definition`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: object) -> Self:
        """The cron that a stranger's JSON object describes. Raises ValueError."""
        if not isinstance(given, Mapping):
            raise ValueError(f"a cron must be a JSON object, not {type(given).__name__}")
        wanted = {one.name for one in fields(cls)}
        if given.keys() != wanted:
            odd = sorted(str(name)[:60] for name in given.keys() ^ wanted)
            raise ValueError(f"a cron came with or without {', '.join(odd[:5])}")
        return cls(**given)

    @classmethod
    def from_words(cls, given: Mapping[str, Any], origin: str) -> Self:
        """The cron that a person has written down, with `jitter` as a duration. Raises
        ValueError."""
        words = {*(one.name for one in fields(cls)), "jitter"} - {"jitter_seconds", "origin"}
        for word in given:
            if word not in words:
                close = difflib.get_close_matches(word, sorted(words), n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {sorted(words)}"
                raise ValueError(f"a cron has no {word!r}; {hint}")
        for word in ("name", "type", "schedule"):
            if word not in given:
                raise ValueError(f"a cron needs a {word}")
        rest = {word: value for word, value in given.items() if word != "jitter"}
        return cls(**rest, jitter_seconds=seconds(given.get("jitter", 0.0)), origin=origin)

    def _text(self, field: str, most: int) -> None:
        value = getattr(self, field)
        if not isinstance(value, str) or not 1 <= len(value) <= most or not value.isprintable():
            raise self._wrong(f"{field} must be printable text of 1 to {most} characters")

    def _word(self, field: str, words: tuple[str, ...]) -> None:
        if getattr(self, field) not in words:
            raise self._wrong(
                f"{field} must be {' or '.join(words)}, not {getattr(self, field)!r:.60}"
            )

    def _wrong(self, rule: str) -> ValueError:
        name = self.name[:60] if isinstance(self.name, str) else "?"
        return ValueError(f"cron {name!r}: {rule}")


def seconds(jitter: Duration) -> float:
    """Of a jitter as people write it. Raises ValueError."""
    try:
        return parse_duration(jitter).total_seconds()
    except ValueError as error:
        raise ValueError(f"jitter: {error}") from None
