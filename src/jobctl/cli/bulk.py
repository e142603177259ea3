"""Doing something to many jobs: chosen, counted, asked about, done in batches, told.

What is confirmed is what is changed: the ids are looked up once, and only those are touched. On a
terminal the count is shown and asked about; where nobody can answer, --yes must have been typed.
Ids that were typed one by one need no question. Everything is written to the audit log by the
transaction that does it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import click

from jobctl.cli import database
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.kinds import LARGEST_ID, TEXT
from jobctl.cli.options import Chosen, filter_options
from jobctl.cli.output import Output, say
from jobctl.cli.table import safe
from jobctl.store import reading
from jobctl.store.operating import BATCH, Order, Verb
from jobctl.store.reading import LARGEST_COUNT, Connection
from jobctl.supervisor.settings_sources import Loaded

#: A function with click's options on it.
Command = Callable[..., Any]

SAMPLE = 5


@dataclass
class Wish:
    """Which jobs, and how sure the user is."""

    ids: list[int]
    chosen: Chosen
    every: bool
    yes: bool
    dry_run: bool
    reason: str | None

    @property
    def is_by_id(self) -> bool:
        """Whether each job was named."""
        return bool(self.ids)


@dataclass
class Result:
    """What became of it."""

    moved: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)


def selection(*, states: Sequence[str] | None) -> Callable[[Command], Command]:
    """Adds ids, filters, --all, --yes, --dry-run and --reason; the command gets a `wish`."""

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
            )
            _require_choice(wish)
            return command(*args, wish=wish, **kwargs)

        options: list[Callable[[Command], Command]] = [
            click.argument("job_ids", metavar="[ID...]", nargs=-1),
            filter_options(states=states),
            click.option("--all", "every", is_flag=True, help="All of them."),
            click.option("--yes", is_flag=True, help="Do not ask."),
            click.option("--dry-run", is_flag=True, help="Only say which it would be."),
            click.option("--reason", type=TEXT, metavar="TEXT", help="Why; kept in the audit log."),
        ]
        chosen: Command = wrapped
        for option in reversed(options):
            chosen = option(chosen)
        return chosen

    return decorate


def move(loaded: Loaded, wish: Wish, verbs: Mapping[str, Verb], word: str, output: Output) -> int:
    """Does it: `verbs` says what is done to jobs of which state, `word` what it is called."""
    with database.connect(loaded) as connection:
        asked: dict[str, Any] = (
            {"ids": wish.ids} if wish.is_by_id else wish.chosen.at(database.now(connection)).words()
        )
        groups, result, capped = _choose(connection, wish, verbs)
        many = sum(len(ids) for ids in groups.values())
        if wish.dry_run:
            result.moved = [job_id for ids in groups.values() for job_id in ids]
            say(f"{_jobs(many, capped)} would be affected; nothing was changed.")
        elif many:
            _confirm(wish, groups, many, capped, word)
            order = Order.by_me(wish.reason, asked)
            for state, ids in groups.items():
                _in_batches(connection, verbs[state], ids, order, result, many)
            _explain_missing(connection, groups, result)
    return _tell(wish, result, word, output, capped)


def _choose(
    connection: Connection, wish: Wish, verbs: Mapping[str, Verb]
) -> tuple[dict[str, list[int]], Result, bool]:
    """The ids by state, those that cannot be meant, and whether there are even more."""
    result = Result()
    groups: dict[str, list[int]] = {state: [] for state in verbs}
    if wish.is_by_id:
        for start in range(0, len(wish.ids), BATCH):
            batch = wish.ids[start : start + BATCH]
            found = {row["id"]: row["state"] for row in reading.jobs(connection, batch)}
            for job_id in batch:
                state = found.get(job_id)
                if state in groups:
                    groups[state].append(job_id)
                else:
                    result.refused[job_id] = _refusal(job_id, state, verbs)
        return groups, result, False
    now = database.now(connection)
    wanted = wish.chosen.words["state"]
    capped = False
    for state in [wanted] if wanted else list(verbs):
        assert state is not None  # noqa: S101 - for mypy: `wanted` is not None here
        wish.chosen.words["state"] = state
        ids = reading.ids(connection, wish.chosen.at(now), LARGEST_COUNT + 1)
        capped = capped or len(ids) > LARGEST_COUNT
        # The oldest first: whoever has waited longest is served first.
        groups[state] = ids[:LARGEST_COUNT][::-1]
    wish.chosen.words["state"] = wanted
    return groups, result, capped


def _confirm(
    wish: Wish, groups: Mapping[str, Sequence[int]], many: int, capped: bool, word: str
) -> None:
    if wish.is_by_id or wish.yes:
        return
    sample = [job_id for ids in groups.values() for job_id in ids][:SAMPLE]
    shown = ", ".join(f"#{job_id}" for job_id in sample) + (", ..." if many > SAMPLE else "")
    say(f"{_jobs(many, capped)}: {shown}")
    if not sys.stdin.isatty():
        raise Failure(
            ExitCode.USAGE,
            f"Nobody is there to confirm; nothing was changed. Add --yes to {word} them, or "
            "--dry-run to see which they are.",
        )
    click.confirm(f"{word.capitalize()} {_jobs(many, False)}?", abort=True, err=True)


def _in_batches(
    connection: Connection,
    verb: Verb,
    ids: Sequence[int],
    order: Order,
    result: Result,
    many: int,
) -> None:
    for start in range(0, len(ids), BATCH):
        try:
            result.moved += verb(connection, ids[start : start + BATCH], order)
        except KeyboardInterrupt:
            say(f"\nStopped: {len(result.moved)} of {many} are done, the rest is as it was.")
            raise
        if many > BATCH and sys.stderr.isatty():
            click.echo(f"\r{len(result.moved)} of {many}", nl=False, err=True)
    if many > BATCH and sys.stderr.isatty():
        click.echo("", err=True)


def _explain_missing(
    connection: Connection, groups: Mapping[str, Sequence[int]], result: Result
) -> None:
    """Somebody else was quicker with these."""
    moved = set(result.moved)
    for was, ids in groups.items():
        missed = [job_id for job_id in ids if job_id not in moved]
        for start in range(0, len(missed), BATCH):
            batch = missed[start : start + BATCH]
            now = {row["id"]: row["state"] for row in reading.jobs(connection, batch)}
            for job_id in batch:
                result.refused[job_id] = (
                    f"#{job_id} is not {was} any more but {now.get(job_id, 'gone')}."
                )


def _tell(wish: Wish, result: Result, word: str, output: Output, capped: bool) -> int:
    for sentence in list(result.refused.values())[:20]:
        say(sentence)
    if len(result.refused) > 20:
        say(f"And {len(result.refused) - 20} more.")
    if not wish.dry_run:
        queued = f"{_jobs(len(result.moved), False)} queued again."
        say(queued if result.moved or result.refused else "No job matches; nothing was changed.")
        if capped:
            say("There are more than one command takes: run it again.")
    facts = {
        "dry_run": wish.dry_run,
        "queued": [] if wish.dry_run else result.moved,
        "would_be_queued": result.moved if wish.dry_run else [],
        "refused": [{"id": job, "because": why} for job, why in result.refused.items()],
    }
    if output.format == "name" or (output.is_table and wish.dry_run):
        output.names(result.moved)
    elif not output.is_table:
        output.one(facts, name=word, text=str)
    if not result.refused:
        return ExitCode.PARTLY_DONE if capped and not wish.dry_run else ExitCode.DONE
    if result.moved:
        return ExitCode.PARTLY_DONE
    nowhere = all("There is no job" in sentence for sentence in result.refused.values())
    return ExitCode.NO_SUCH_THING if nowhere else ExitCode.FAILED


def _refusal(job_id: int, state: str | None, verbs: Mapping[str, Verb]) -> str:
    if state is None:
        return f"There is no job #{job_id}. Finished jobs are forgotten after history_keep."
    return f"#{job_id} is {state}, not {' or '.join(verbs)}."


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


def _jobs(many: int, capped: bool) -> str:
    count = f"{many}+" if capped else str(many)
    return "1 job" if many == 1 else f"{count} jobs"
