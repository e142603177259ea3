"""What a command prints: data on stdout, everything else on stderr.

Data are a table for people, JSON for programs (one object or array, or a line each), or names to
feed to another command. JSON is a contract: field names stay, times are ISO-8601 in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any

import click

from jobctl.cli.moments import iso
from jobctl.cli.table import table

Row = Mapping[str, Any]
#: A function with click's options on it.
Command = Callable[..., Any]

FORMATS = ("table", "json", "jsonl", "name")


@dataclass(frozen=True)
class Output:
    """How the user wants it."""

    format: str = "table"

    @property
    def is_table(self) -> bool:
        """Whether a person reads it."""
        return self.format == "table"

    def rows(
        self,
        rows: Sequence[Row],
        *,
        name: str,
        titles: Sequence[str],
        cells: Callable[[Row], Sequence[object]],
    ) -> None:
        """Many things; `name` is the field that names one, `cells` are a row of the table."""
        match self.format:
            case "json":
                data(json_text(list(rows), indent=2))
            case "jsonl":
                for row in rows:
                    data(json_text(row))
            case "name":
                self.names(row[name] for row in rows)
            case _:
                data(table(titles, [cells(row) for row in rows]))

    def one(self, thing: Row, *, name: object, text: Callable[[], str]) -> None:
        """One thing; `text` makes what people read."""
        match self.format:
            case "json":
                data(json_text(thing, indent=2))
            case "jsonl":
                data(json_text(thing))
            case "name":
                data(str(name))
            case _:
                data(text())

    def names(self, names: Iterable[object]) -> None:
        """One a line."""
        for name in names:
            data(str(name))


class ReaderLeft(Exception):
    """Whoever read our output has enough of it. (click makes a failure of BrokenPipeError.)"""


def data(text: str) -> None:
    """To stdout. Raises ReaderLeft."""
    try:
        click.echo(text)
    except BrokenPipeError as error:
        raise ReaderLeft from error


def say(sentence: str) -> None:
    """To whoever typed the command, and not into their pipe."""
    click.echo(sentence, err=True)


def json_text(value: object, indent: int | None = None) -> str:
    """JSON that stays JSON whatever is in it."""
    separators = None if indent else (",", ":")
    return json.dumps(value, indent=indent, separators=separators, default=_plain)


def output_option(command: Command) -> Command:
    """Adds `-o` and `--json`; the command gets them as `output`."""

    @click.option(
        "-o", "--output", "format_", type=click.Choice(FORMATS), default="table",
        help="How to print it.", show_default=True,
    )  # fmt: skip
    @click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
    @wraps(command)
    def wrapped(*args: Any, format_: str, as_json: bool, **kwargs: Any) -> Any:
        return command(*args, output=Output("json" if as_json else format_), **kwargs)

    return wrapped


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return str(value)
