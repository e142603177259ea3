"""Which jobs somebody means, and how sure they are: ids, or filters, or --all.

The same words wherever many jobs are chosen. A choice that says nothing is refused: nobody changes
every job by leaving something out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from jobctl.cli.kinds import LARGEST_ID, RATE, TEXT
from jobctl.cli.options import Chosen, filter_options
from jobctl.cli.table import safe

#: A function with click's options on it.
Command = Callable[..., Any]


@dataclass
class Wish:
    """Which jobs, and how sure the user is."""

    ids: list[int]
    chosen: Chosen
    every: bool
    yes: bool
    dry_run: bool
    reason: str | None
    limit: int | None = None
    rate: float | None = None

    @property
    def is_by_id(self) -> bool:
        """Whether each job was named."""
        return bool(self.ids)


def selection(
    *, states: Sequence[str] | None, of_dead: bool = False, needs_reason: bool = False
) -> Callable[[Command], Command]:
    """Adds ids, filters, --all, --limit, --rate, --yes, --dry-run and --reason; the command gets a
    `wish`."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            wish = Wish(
                ids=_ids(kwargs.pop("job_ids")),
                chosen=kwargs.pop("chosen"),
                every=kwargs.pop("every"),
                yes=kwargs.pop("yes"),
                dry_run=kwargs.pop("dry_run"),
                reason=kwargs.pop("reason"),
                limit=kwargs.pop("limit"),
                rate=kwargs.pop("rate"),
            )
            _require_choice(wish)
            return command(*args, wish=wish, **kwargs)

        options: list[Callable[[Command], Command]] = [
            click.argument("job_ids", metavar="[ID...]", nargs=-1),
            filter_options(states=states, of_dead=of_dead),
            click.option("--all", "every", is_flag=True, help="All of them."),
            click.option(
                "--limit",
                type=click.IntRange(1),
                metavar="N",
                help="At most so many, oldest first.",
            ),
            click.option("--rate", type=RATE, metavar="N/s", help="No faster than this."),
            click.option("--yes", is_flag=True, help="Do not ask."),
            click.option("--dry-run", is_flag=True, help="Only say which it would be."),
            click.option(
                "--reason",
                type=TEXT,
                metavar="TEXT",
                required=needs_reason,
                help="Why; kept in the audit log.",
            ),
        ]
        chosen: Command = wrapped
        for option in reversed(options):
            chosen = option(chosen)
        return chosen

    return decorate


def _ids(words: Sequence[str]) -> list[int]:
    if list(words) == ["-"]:
        words = sys.stdin.read().split()
        if not words:
            raise click.UsageError("There are no ids on stdin.")
    ids = []
    for word in words:
        number = word.removeprefix("#")
        if not (number.isascii() and number.isdecimal() and int(number[:20]) <= LARGEST_ID):
            raise click.UsageError(f"{safe(word)} is no job's id.")
        ids.append(int(number))
    return list(dict.fromkeys(ids))


def _require_choice(wish: Wish) -> None:
    filtered = not wish.chosen.is_empty
    if wish.is_by_id and (filtered or wish.every):
        raise click.UsageError("Give ids, or filters, or --all.")
    if not wish.is_by_id and not filtered and not wish.every:
        raise click.UsageError("Which jobs? Give ids (- reads them from stdin), filters, or --all.")
