"""`jobctl dead`: what failed for good, until somebody decides."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from jobctl.cli import bulk, database
from jobctl.cli.bulk import Deed
from jobctl.cli.edits import edit_options
from jobctl.cli.jobs import error_of
from jobctl.cli.moments import iso, since
from jobctl.cli.nouns import Noun
from jobctl.cli.options import Chosen, database_options, filter_options
from jobctl.cli.output import Output, Row, json_text, output_option, say
from jobctl.cli.table import cut
from jobctl.store import failures, operating, reading
from jobctl.store.failures import Window
from jobctl.store.operating import Verb
from jobctl.store.states import State
from jobctl.supervisor.settings_sources import Loaded

TITLES = ("ID", "TYPE", "QUEUE", "DIED", "ATTEMPTS", "OWNER", "KEY", "ARGS", "ERROR")
WIDE = ("SUBJECT", "LINK", "FIRST FAILED", "LAST FAILED")
GROUP_TITLES = ("GROUP", "JOBS", "FIRST", "LAST", "TYPE", "SAMPLES", "WHERE", "ERROR")
ARGS_WIDTH, SHOWN_SAMPLES = 40, 3


@click.group(cls=Noun)
def dead() -> None:
    """Jobs that failed for good."""


@dead.command("list")
@filter_options(states=None, of_dead=True)
@click.option("--group", is_flag=True, help="By error: how many, since when, and some of them.")
@click.option("--wide", is_flag=True, help="With subject, link, first and last failure.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@database_options
@output_option
def list_(
    loaded: Loaded, chosen: Chosen, group: bool, wide: bool, limit: int, output: Output
) -> None:
    """List dead jobs, those that died last first. --since and --until are when they died."""
    if group and chosen.words["error_group"] is not None:
        raise click.UsageError("--group lists the groups, --error-group the jobs of one.")
    chosen.words["state"] = State.DEAD
    with database.connect(loaded) as connection:
        now = database.now(connection)
        wanted = chosen.at(now)
        if group:
            found, window = failures.groups(connection, wanted, limit + 1)
        else:
            rows = reading.find(connection, wanted, limit + 1)
    if group:
        _print_groups(output, found, limit, window, now)
    else:
        _print_jobs(output, rows, limit, wide, now)


def _print_jobs(output: Output, rows: Sequence[Row], limit: int, wide: bool, now: datetime) -> None:
    def cells(row: Row) -> list[object]:
        wider = [
            row["subject"],
            row["link"],
            _moment(row["first_failed_at"]),
            _moment(row["last_failed_at"]),
        ]
        return [
            row["id"],
            row["type"],
            row["queue"],
            f"{since(now, row['dead_since'])} ago",
            row["attempt"],
            row["owner"],
            row["key"],
            cut(json_text(row["args"]), ARGS_WIDTH),
            *(wider if wide else ()),
            error_of(row),
        ]

    titles = (*TITLES[:-1], *(WIDE if wide else ()), TITLES[-1])
    output.rows(rows[:limit], name="id", titles=titles, cells=cells)
    if len(rows) > limit and output.is_table:
        say(f"There are more: --until {iso(rows[limit - 1]['dead_since'])}")


def _print_groups(
    output: Output, rows: Sequence[Row], limit: int, window: Window, now: datetime
) -> None:
    def cells(row: Row) -> list[object]:
        samples = [f"#{job_id}" for job_id in row["samples"][:SHOWN_SAMPLES]]
        named = " ".join(part for part in (row["error_class"], row["error_code"]) if part)
        return [
            row["group"],
            row["jobs"],
            f"{since(now, row['first_seen'])} ago",
            f"{since(now, row['last_seen'])} ago",
            ", ".join(row["types"]),
            " ".join(samples),
            row["frame"],
            f"{named}: {row['message']}" if row["message"] else named,
        ]

    # Each row says of how many it is: a program reads one at a time.
    told = [
        {**row, "of_jobs": window.jobs, "of_jobs_since": window.back_to, "capped": window.capped}
        for row in rows[:limit]
    ]
    output.rows(told, name="group", titles=GROUP_TITLES, cells=cells)
    if not output.is_table:
        return
    if window.capped:
        say(
            f"Of the {window.jobs} that died last, since {_moment(window.back_to)}; there are "
            "older ones, which --until shows."
        )
    elif window.jobs:
        say(f"Of {window.jobs} dead {'job' if window.jobs == 1 else 'jobs'}.")
    if len(rows) > limit:
        say("There are more groups: --limit")


@dead.command()
@bulk.selection(states=None, of_dead=True)
@edit_options
@database_options
@output_option
def replay(loaded: Loaded, wish: bulk.Wish, replay: Verb, is_whole: bool, output: Output) -> int:
    """Queue dead jobs again, with new budgets. Their attempts are kept."""
    if is_whole and len(wish.ids) != 1:
        raise click.UsageError(
            "--args is all the arguments of one job: give its id. --set changes some of many."
        )
    wish.chosen.words["state"] = State.DEAD
    return bulk.move(
        loaded, wish, Deed("replay", "queued again", "queued", {"dead": replay}), output
    )


@dead.command()
@bulk.selection(states=None, of_dead=True, needs_reason=True)
@database_options
@output_option
def discard(loaded: Loaded, wish: bulk.Wish, output: Output) -> int:
    """Give dead jobs up, for a --reason. Nobody runs them any more, and their keys are free."""
    if not (wish.reason or "").strip():
        raise click.UsageError("--reason is kept in the audit log: say why.")
    wish.chosen.words["state"] = State.DEAD
    deed = Deed("discard", "discarded", "discarded", {"dead": operating.discard})
    return bulk.move(loaded, wish, deed, output)


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)
