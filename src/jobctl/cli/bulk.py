"""Doing something to many jobs: chosen, counted, asked about, done in batches, told.

What is confirmed is what is changed: the ids are looked up once, and only those are touched. On a
terminal the count is shown and asked about; where nobody can answer, --yes must have been typed.
Ids that were typed one by one need no question. Everything is written to the audit log by the
transaction that does it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from jobctl.cli import database
from jobctl.cli.batches import Batches
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.output import Output, say
from jobctl.cli.wish import Wish, selection
from jobctl.store import reading
from jobctl.store.operating import BATCH, Order, Verb
from jobctl.store.reading import LARGEST_COUNT, Connection
from jobctl.supervisor.settings_sources import Loaded

__all__ = ["Deed", "Result", "Wish", "move", "selection"]

SAMPLE = 5
#: Whoever changes more on a terminal types the number: a y is typed in passing.
MANY = 1_000


@dataclass(frozen=True)
class Deed:
    """What is done to jobs, and the words for it.

    `verbs` says what is done to jobs of which state; JSON has those that it was done to as `field`,
    and with --dry-run as `would_be_` and that.
    """

    word: str  # "replay"
    done: str  # "queued again"
    field: str  # "queued"
    verbs: Mapping[str, Verb]


@dataclass
class Result:
    """What became of it."""

    moved: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    capped: bool = False  # there are more than one command takes
    left: int = 0  # matched, and left alone because of --limit
    stopped: bool = False  # by Ctrl-C


def move(loaded: Loaded, wish: Wish, deed: Deed, output: Output) -> int:
    """Does it, or says what it would do; returns what to exit with."""
    with database.connect(loaded) as connection:
        asked: dict[str, Any] = (
            {"ids": wish.ids} if wish.is_by_id else wish.chosen.at(database.now(connection)).words()
        )
        groups, result = _choose(connection, wish, deed)
        many = sum(len(ids) for ids in groups.values())
        if wish.dry_run:
            result.moved = [job_id for ids in groups.values() for job_id in ids]
            say(f"{_jobs(many, result)} would be affected; nothing was changed.")
        elif many:
            _confirm(wish, groups, many, result, deed.word)
            _in_batches(connection, groups, deed, Order.by_me(wish.reason, asked), wish, result)
    return _tell(wish, result, many, deed, output)


def _choose(connection: Connection, wish: Wish, deed: Deed) -> tuple[dict[str, list[int]], Result]:
    """The ids by state, and what there is to say of those that are left out."""
    result = Result()
    groups: dict[str, list[int]] = {state: [] for state in deed.verbs}
    if wish.is_by_id:
        _sort(connection, wish.ids, groups, result, deed)
    else:
        now = database.now(connection)
        wanted = wish.chosen.words["state"]
        for state in [wanted] if wanted else list(deed.verbs):
            assert state is not None  # noqa: S101 - for mypy: `wanted` is not None here
            wish.chosen.words["state"] = state
            ids = reading.ids(connection, wish.chosen.at(now), LARGEST_COUNT + 1)
            result.capped = result.capped or len(ids) > LARGEST_COUNT
            # The oldest first: whoever has waited longest is served first.
            groups[state] = ids[:LARGEST_COUNT][::-1]
        wish.chosen.words["state"] = wanted
    if wish.limit is not None:
        room = wish.limit
        for state, ids in groups.items():
            groups[state], left = ids[:room], ids[room:]
            room -= len(groups[state])
            result.left += len(left)
    return groups, result


def _sort(
    connection: Connection,
    ids: Sequence[int],
    groups: dict[str, list[int]],
    result: Result,
    deed: Deed,
) -> None:
    """Ids that were named, into the groups that they belong to."""
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        found = {row["id"]: row["state"] for row in reading.jobs(connection, batch)}
        for job_id in batch:
            state = found.get(job_id)
            if state in groups:
                groups[state].append(job_id)
            else:
                result.refused[job_id] = _refusal(job_id, state, deed.verbs)


def _confirm(
    wish: Wish, groups: Mapping[str, Sequence[int]], many: int, result: Result, word: str
) -> None:
    if wish.is_by_id or wish.yes:
        return
    sample = [job_id for ids in groups.values() for job_id in ids][:SAMPLE]
    shown = ", ".join(f"#{job_id}" for job_id in sample) + (", ..." if many > SAMPLE else "")
    say(f"{_jobs(many, result)}: {shown}")
    if not sys.stdin.isatty():
        raise Failure(
            ExitCode.USAGE,
            f"Nobody is there to confirm; nothing was changed. Add --yes to {word} them, or "
            "--dry-run to see which they are.",
        )
    if many <= MANY:
        click.confirm(f"{word.capitalize()} {_count(many)}?", abort=True, err=True)
    elif click.prompt(f"Type {many} to {word} them", default="", show_default=False, err=True) != (
        str(many)
    ):
        raise click.Abort


def _in_batches(
    connection: Connection,
    groups: Mapping[str, Sequence[int]],
    deed: Deed,
    order: Order,
    wish: Wish,
    result: Result,
) -> None:
    with Batches(sum(len(ids) for ids in groups.values()), wish.rate) as batches:
        for state, ids in groups.items():
            for batch in batches.of(ids):
                moved = deed.verbs[state](connection, batch, order)
                result.moved += moved
                if len(moved) < len(batch):
                    _explain_missing(connection, state, batch, moved, result)
    result.stopped = batches.stopped


def _explain_missing(
    connection: Connection, was: str, batch: Sequence[int], moved: Sequence[int], result: Result
) -> None:
    """Somebody else was quicker with these."""
    missed = [job_id for job_id in batch if job_id not in set(moved)]
    now = {row["id"]: row["state"] for row in reading.jobs(connection, missed)}
    for job_id in missed:
        state = now.get(job_id, "gone")
        result.refused[job_id] = f"#{job_id} is not {was} any more but {state}."


def _tell(wish: Wish, result: Result, many: int, deed: Deed, output: Output) -> int:
    for sentence in list(result.refused.values())[:20]:
        say(sentence)
    if len(result.refused) > 20:
        say(f"And {len(result.refused) - 20} more.")
    if not wish.dry_run:
        done = f"{_count(len(result.moved))} {deed.done}."
        say(done if result.moved or result.refused else "No job matches; nothing was changed.")
        if result.stopped:
            left = many - len(result.moved) - len(result.refused)
            say(f"Stopped: {_count(left)} of {many} are as they were. Run it again to go on.")
        if result.capped:
            say("There are more than one command takes: run it again.")
        if result.left:
            say(f"{_count(result.left)} more {'matches' if result.left == 1 else 'match'}.")
    facts = {
        "dry_run": wish.dry_run,
        deed.field: [] if wish.dry_run else result.moved,
        f"would_be_{deed.field}": result.moved if wish.dry_run else [],
        "refused": [{"id": job, "because": why} for job, why in result.refused.items()],
    }
    if output.format == "name" or (output.is_table and wish.dry_run):
        output.names(result.moved)
    elif not output.is_table:
        output.one(facts, name=deed.word, text=str)
    return _ending(wish, result)


def _ending(wish: Wish, result: Result) -> ExitCode:
    if result.stopped:
        return ExitCode.INTERRUPTED
    if not result.refused:
        partly = result.capped and wish.limit is None and not wish.dry_run
        return ExitCode.PARTLY_DONE if partly else ExitCode.DONE
    if result.moved:
        return ExitCode.PARTLY_DONE
    nowhere = all("There is no job" in sentence for sentence in result.refused.values())
    return ExitCode.NO_SUCH_THING if nowhere else ExitCode.FAILED


def _refusal(job_id: int, state: str | None, verbs: Mapping[str, Verb]) -> str:
    if state is None:
        return f"There is no job #{job_id}. Finished jobs are forgotten after history_keep."
    return f"#{job_id} is {state}, not {' or '.join(verbs)}."


def _jobs(many: int, result: Result) -> str:
    if result.left:
        more = f"{many + result.left}{'+' if result.capped else ''}"
        return f"{_count(many)} of {more}"
    return f"{many}+ jobs" if result.capped else _count(many)


def _count(many: int) -> str:
    return "1 job" if many == 1 else f"{many} jobs"
