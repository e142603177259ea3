"""`jobctl dead`: what failed for good, until somebody decides."""

from __future__ import annotations

import click

from jobctl.cli import bulk, database
from jobctl.cli.bulk import Deed
from jobctl.cli.jobs import error_of
from jobctl.cli.moments import iso, since
from jobctl.cli.nouns import Noun
from jobctl.cli.options import Chosen, database_options, filter_options
from jobctl.cli.output import Output, Row, output_option, say
from jobctl.store import operating, reading
from jobctl.store.states import State
from jobctl.supervisor.settings_sources import Loaded

TITLES = ("ID", "TYPE", "QUEUE", "DIED", "ATTEMPTS", "OWNER", "KEY", "ERROR")


@click.group(cls=Noun)
def dead() -> None:
    """Jobs that failed for good."""


@dead.command("list")
@filter_options(states=None)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@database_options
@output_option
def list_(loaded: Loaded, chosen: Chosen, limit: int, output: Output) -> None:
    """List dead jobs, those that died last first. --since and --until are when they died."""
    chosen.words["state"] = State.DEAD
    with database.connect(loaded) as connection:
        now = database.now(connection)
        rows = reading.find(connection, chosen.at(now), limit + 1)

    def cells(row: Row) -> list[object]:
        return [
            row["id"],
            row["type"],
            row["queue"],
            f"{since(now, row['dead_since'])} ago",
            row["attempt"],
            row["owner"],
            row["key"],
            error_of(row),
        ]

    output.rows(rows[:limit], name="id", titles=TITLES, cells=cells)
    if len(rows) > limit and output.is_table:
        say(f"There are more: --until {iso(rows[limit - 1]['dead_since'])}")


@dead.command()
@bulk.selection(states=None)
@database_options
@output_option
def replay(loaded: Loaded, wish: bulk.Wish, output: Output) -> int:
    """Queue dead jobs again, with new budgets. Their attempts are kept."""
    wish.chosen.words["state"] = State.DEAD
    deed = Deed("replay", "queued again", "queued", {"dead": operating.replay})
    return bulk.move(loaded, wish, deed, output)
