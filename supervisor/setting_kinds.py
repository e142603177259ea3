"""The kinds of value that a setting can have.

A kind says what it accepts, in words for the person who typed something else, and turns what was
typed into a value. Flags and the environment give text; `jobctl.toml` gives TOML's own types, and
a wrong one is an error there rather than a guess. The rule: a kind never looks anything up; the
same text means the same value on every machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jobctl.store.durations import format_duration, parse_duration
from jobctl.store.schema_name import checked_schema_name
from jobctl.store.sizes import exact_size, parse_size

#: Slots of one host, in all its pools.
MOST_SLOTS = 1000
_TYPE_WORDS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
}


class Refused(ValueError):
    """A value is not what its setting accepts; the message, if any, says what is wrong with it."""


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _plain(value: object) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Kind:
    """`parse` takes text; `from_toml` says which of TOML's types it takes as they are.

    `accepts` is what the person reads who typed something else; `note` is what of it belongs into
    a table of settings.
    """

    accepts: str
    parse: Callable[[Any], Any]
    show: Callable[[Any], str] = _plain
    note: str = ""
    metavar: str = "TEXT"
    from_toml: tuple[type, ...] = (str,)
    is_switch: bool = False

    def from_file(self, value: object) -> Any:
        """A value of `jobctl.toml`. Raises Refused."""
        # type() and not isinstance(): TOML's true is no number, though Python thinks so.
        if type(value) not in self.from_toml:
            raise Refused(f"it is {_TYPE_WORDS.get(type(value), type(value).__name__)}")
        return self.parse(value)


def _text(value: str) -> str:
    if not value.strip():
        raise Refused("it is empty")
    if not value.isprintable():
        raise Refused("it contains control characters")
    return value.strip()


def _path(value: str) -> Path:
    try:
        return Path(_text(value)).expanduser()
    except RuntimeError as error:
        raise Refused("this user has no home folder for the ~ in it") from error


def _switch(value: str | bool) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower()
    if word in ("true", "yes", "on", "1"):
        return True
    if word in ("false", "no", "off", "0"):
        return False
    raise Refused


def _address(value: str) -> Address | None:
    if value.strip() == "off":
        return None
    found = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\]:(\d{1,5})|([^\s:/\[\]]+):(\d{1,5})", value.strip())
    if found is None:
        raise Refused
    port = int(found[2] or found[4])
    if port > 65535:
        raise Refused("a port is at most 65535")
    return Address(found[1] or found[3], port)


def _names(value: str | list[object]) -> tuple[str, ...] | None:
    if isinstance(value, str):
        if value.strip() in ("all", "*"):
            return None
        value = list(value.split(","))
    names = [_text(name) if isinstance(name, str) else _refuse_item(name) for name in value]
    if not names:
        raise Refused("it is empty")
    return tuple(dict.fromkeys(names))


def _refuse_item(item: object) -> str:
    raise Refused(f"{item!r} in it is not text")


def _processors(value: str) -> frozenset[int]:
    found: set[int] = set()
    for part in value.split(","):
        span = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if span is None:
            raise Refused
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first:
            raise Refused(f"{part.strip()} goes backwards")
        found.update(range(first, last + 1))
    return frozenset(found)


def _module(value: str) -> str:
    name = _text(value)
    if not all(part.isidentifier() for part in name.split(".")):
        raise Refused("it is what Python imports, not a file")
    return name


def _schema(value: str) -> str:
    try:
        return checked_schema_name(value)
    except ValueError as error:
        raise Refused(str(error)) from error


TEXT = Kind("text", _text)
PATH = Kind("a path", _path, metavar="PATH")
MODULE = Kind("a module's name, such as shop.jobs", _module, metavar="MODULE")
SCHEMA = Kind("the name of a schema", _schema, metavar="NAME")
SWITCH = Kind(
    "true or false",
    _switch,
    lambda on: "true" if on else "false",
    from_toml=(bool,),
    is_switch=True,
)
ADDRESS = Kind(
    "host:port, such as 127.0.0.1:9464 or [::1]:9464, or off",
    _address,
    lambda address: "off" if address is None else str(address),
    metavar="HOST:PORT",
)
NAMES = Kind(
    "names separated by commas, such as mail,reports, or all",
    _names,
    lambda names: "all" if names is None else ",".join(names),
    note="Separated by commas.",
    metavar="NAMES",
    from_toml=(str, list),
)
PROCESSORS = Kind("numbers of processors as taskset -c takes them, such as 2-3 or 0,4", _processors)


def count(least: int, most: int) -> Kind:
    """A whole number from `least` to `most`."""

    def parse(value: str | int) -> int:
        if isinstance(value, str):
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", value.strip()):
                raise Refused
            value = int(value)
        if not least <= value <= most:
            raise Refused
        return value

    return Kind(
        f"a whole number from {least} to {most}",
        parse,
        note=f"{least} to {most}.",
        from_toml=(int,),
    )


def duration(least: float, most: float = math.inf) -> Kind:
    """Seconds, from text such as 90s, 15m, 2h, 7d."""
    bounds = [f"at least {format_duration(least)}"] if least > 0 else []
    bounds += [f"at most {format_duration(most)}"] if most < math.inf else []
    words = ", ".join(("a duration such as 90s, 15m, 2h or 7d", *bounds))
    note = ", ".join(bounds).capitalize() + "." if bounds else ""

    def parse(value: str | float) -> float:
        try:
            seconds = parse_duration(value).total_seconds()
        except (ValueError, TypeError) as error:
            raise Refused from error
        if not least <= seconds <= most:
            raise Refused
        return seconds

    return Kind(words, parse, format_duration, note, "DURATION", from_toml=(str, int, float))


def size(least: int) -> Kind:
    """Bytes, from text such as 512MiB."""
    words = f"an amount of memory such as 512MiB or 2GiB, at least {exact_size(least)}"

    def parse(value: str | int) -> int:
        try:
            found = parse_size(value)
        except ValueError as error:
            raise Refused from error
        if found < least:
            raise Refused
        return found

    return Kind(words, parse, _size_text, f"At least {exact_size(least)}.", "SIZE", (str, int))


def _size_text(value: int | None) -> str:
    return "" if value is None else exact_size(value)


def choice(*words: str) -> Kind:
    """One of a few words."""

    def parse(value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            raise Refused
        return word

    accepts = f"{', '.join(words[:-1])} or {words[-1]}"
    return Kind(accepts, parse, note=f"{accepts.capitalize()}.", metavar="|".join(words))
