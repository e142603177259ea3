"""A job before it exists: checked, and written down as the function `enqueue_many` takes it.

Whatever can be found wrong without the database is found here, with a sentence, so that the
caller's transaction stays whole. The rules are those of the function; it checks again, because not
everybody comes this way.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from json.encoder import encode_basestring_ascii
from typing import Any, Literal, TypedDict

from jobctl.store.durations import Duration, parse_duration
from jobctl.store.errors import InvalidJob, UnstorableValue
from jobctl.store.job_type import LONGEST_TIMEOUT, NEWEST_VERSION, is_one_key
from jobctl.store.json_values import arguments_text

FIRST_RUN_AT = datetime(1970, 1, 1, tzinfo=UTC)
LAST_RUN_AT = datetime(2200, 1, 1, tzinfo=UTC)
KEY_BYTES = 1_500
FOREVER = -1.0
_MOST_ATTEMPTS = 2**31 - 1
#: More than this join in steps: each parent's end writes to the one row that waits for all of them.
MOST_PARENTS = 1_000
_LARGEST_ID = 2**63 - 1

#: What becomes of a job when one that it comes after is dead, cancelled or discarded.
OnDead = Literal["hold", "cancel"]


class Options(TypedDict, total=False):
    """The words that an enqueue takes beside the handler's own."""

    key: str | None
    subject: str | None
    queue: str | None
    priority: int | None
    delay: Duration | None
    run_at: datetime | None
    timeout: Duration | None
    max_attempts: int | None
    limit: str | None
    after: Iterable[int | NewJob] | None
    on_dead: OnDead | None


class AllOptions(Options, total=False):
    """And what one says who enqueues without the handler's declaration at hand."""

    schema_version: int | None


OPTIONS = tuple(Options.__annotations__)


@dataclass(frozen=True, slots=True, eq=False)
class NewJob:
    """A job to be enqueued. `text` is its JSON object, in ASCII, without what it comes after.

    `after` is what it comes after: ids of jobs, and items that come before it in the same call. An
    item is itself and no other: two with the same words are two jobs.
    """

    type: str
    text: str
    after: tuple[int | NewJob, ...] = ()
    on_dead: OnDead | None = None

    def coming_after(
        self, parents: Iterable[int | NewJob], on_dead: OnDead | None = None
    ) -> NewJob:
        """Another item, which comes after these as well; `on_dead` if it says nothing itself.

        Raises InvalidJob."""
        word = self.on_dead if on_dead is None else (self.on_dead or _on_dead(on_dead))
        return replace(self, after=_after([*self.after, *parents]), on_dead=word)

    def as_item(
        self, parents: Sequence[int | Mapping[str, int]], traceparent: str | None = None
    ) -> str:
        """Its JSON object as `enqueue_many` takes it; `parents` is `after` as the call knows it,
        `traceparent` the W3C's, which needs no escaping."""
        text = self.text
        if traceparent is not None:
            text = f'{text[:-1]},"traceparent":"{traceparent}"}}'
        if not parents:
            return text
        written = ",".join(
            int.__repr__(one) if isinstance(one, int) else f'{{"item":{one["item"]}}}'
            for one in parents
        )
        return f'{text[:-1]},"after":[{written}],"on_dead":"{self.on_dead or "hold"}"}}'


def new_job(
    type: str,
    args: Mapping[str, Any] | None = None,
    *,
    key: str | None = None,
    subject: str | None = None,
    queue: str | None = None,
    priority: int | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    timeout: Duration | None = None,
    max_attempts: int | None = None,
    limit: str | None = None,
    after: Iterable[int | NewJob] | None = None,
    on_dead: OnDead | None = None,
    schema_version: int | None = None,
    key_ttl_seconds: float | None = None,
    **unknown: Any,
) -> NewJob:
    """Raises InvalidJob, naming the type and the field, for what cannot be enqueued; TypeError for
    an option that does not exist.

    `key_ttl_seconds` is FOREVER, or None for what the type's newest code says.
    """
    _refuse_unknown(unknown)
    try:
        if delay is not None and run_at is not None:
            raise InvalidJob("it has both a delay and a run_at: give one of them")
        fields = {
            "type": _text("type", type, 1, 200),
            "args": arguments_text({} if args is None else args),
            "key": _key(key),
            "subject": _text("subject", subject, 0, 500),
            "queue": _text("queue", queue, 1, 100),
            "priority": _whole("priority", priority, 0, 3),
            "delay_seconds": None if delay is None else _seconds("delay", delay),
            "run_at": None if run_at is None else _date(run_at),
            "timeout_seconds": None if timeout is None else _timeout(timeout),
            "max_attempts": _whole("max_attempts", max_attempts, 1, _MOST_ATTEMPTS),
            "limit_key": _limit(limit),
            "schema_version": _whole("schema_version", schema_version, 0, NEWEST_VERSION),
            "key_ttl_seconds": None if key_ttl_seconds is None else repr(float(key_ttl_seconds)),
        }
        word = None if on_dead is None else _on_dead(on_dead)
        parents = () if after is None else _after(after)
    except UnstorableValue as error:
        what = f"{_shown(type)} was not enqueued: {error.what}"
        raise UnstorableValue(what, error.path, error.why) from None
    except InvalidJob as error:
        raise InvalidJob(f"{_shown(type)} was not enqueued: {error}") from None
    given = ",".join(f'"{name}":{value}' for name, value in fields.items() if value is not None)
    return NewJob(type, f"{{{given}}}", parents, word)


def _refuse_unknown(options: Mapping[str, Any]) -> None:
    for name in options:
        close = difflib.get_close_matches(name, OPTIONS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(OPTIONS)}"
        raise TypeError(f"enqueue has no option {name!r}{hint}")


def _text(field: str, value: object, least: int, most: int) -> str | None:
    if value is None and field != "type":
        return None
    if not isinstance(value, str):
        raise InvalidJob(f"its {field} must be text, not {_shown(value)}")
    if not least <= len(value) <= most:
        raise InvalidJob(f"its {field} must have {least} to {most} characters, it has {len(value)}")
    if "\0" in value:
        raise InvalidJob(f"its {field} has the character NUL, which PostgreSQL cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidJob(f"its {field} has a lone surrogate, which is half a character") from None
    return encode_basestring_ascii(value)


def _key(key: object) -> str | None:
    written = _text("key", key, 1, 500)
    if isinstance(key, str) and len(key.encode()) > KEY_BYTES:
        raise InvalidJob(f"its key must have at most {KEY_BYTES} bytes in UTF-8: pass a digest")
    return written


def _limit(limit: object) -> str | None:
    written = _text("limit", limit, 1, 200)
    if isinstance(limit, str) and not is_one_key(limit):
        raise InvalidJob(
            f"its limit {_shown(limit)} must be one key: no *, which is for patterns of jobctl "
            "limits set, and no control characters"
        )
    return written


def _whole(field: str, value: object, least: int, most: int) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidJob(
            f"its {field} must be a whole number from {least} to {most}, not {_shown(value)}"
        )
    return int.__repr__(value)


def _after(parents: object) -> tuple[int | NewJob, ...]:
    if isinstance(parents, str | bytes | Mapping) or not isinstance(parents, Iterable):
        hint = ": [id]" if isinstance(parents, int | NewJob) else ""
        raise InvalidJob(f"its after must be a list of ids and items, not {_shown(parents)}{hint}")
    found: dict[int, int | NewJob] = {}
    for one in parents:
        if isinstance(one, NewJob):
            found[-id(one)] = one
        elif isinstance(one, int) and not isinstance(one, bool) and 0 < one <= _LARGEST_ID:
            found[one] = int(one)
        else:
            raise InvalidJob(
                "its after must be a list of ids of jobs, and of items of the same call, not of "
                f"{_shown(one)}"
            )
    if len(found) > MOST_PARENTS:
        raise InvalidJob(
            f"it comes after {len(found)} jobs, more than {MOST_PARENTS}: join them in steps"
        )
    return tuple(found.values())


def _on_dead(word: object) -> OnDead:
    if word not in ("hold", "cancel"):
        raise InvalidJob(
            f"its on_dead must be 'hold' or 'cancel', not {_shown(word)}: what becomes of it when "
            "a job that it comes after is dead"
        )
    return "hold" if word == "hold" else "cancel"


def _seconds(field: str, value: Duration) -> str:
    try:
        return repr(parse_duration(value).total_seconds())
    except ValueError as error:
        raise InvalidJob(f"its {field}: {error}") from None


def _timeout(value: Duration) -> str:
    seconds = _seconds("timeout", value)
    if not 0 < float(seconds) <= LONGEST_TIMEOUT:
        raise InvalidJob(f"its timeout must be more than 0 and at most 365d, not {_shown(value)}")
    return seconds


def _date(value: object) -> str:
    if not isinstance(value, datetime):
        hint = ": a date alone has no time" if isinstance(value, date) else ""
        raise InvalidJob(
            f"its run_at must be a datetime with a time zone, not {_shown(value)}{hint}"
        )
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidJob(
            f"its run_at {value.isoformat()} has no time zone, so it is not a moment: use "
            "datetime.now(UTC) + timedelta(...), or value.astimezone()"
        )
    if not FIRST_RUN_AT <= value < LAST_RUN_AT:
        raise InvalidJob(f"its run_at {value.isoformat()} must lie between 1970 and 2200")
    return f'"{value.astimezone(UTC).isoformat()}"'


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
