"""`jobctl status`: what waits, what runs, and what is wrong."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import click

from jobctl.cli import database, overview, queues
from jobctl.cli.endings import ExitCode
from jobctl.cli.how_far import words
from jobctl.cli.moments import DURATION, since
from jobctl.cli.options import database_options
from jobctl.cli.output import Output, data, output_option
from jobctl.cli.table import is_terminal, paint, safe, table
from jobctl.store.reading import Connection
from jobctl.supervisor.settings_sources import Loaded

SHOWN_STUCK = 10
SHOWN_PROGRESS = 10
#: How a trouble of this severity looks; the words say it too.
SEVERITY_COLOURS = {"critical": "red", "warning": "yellow", "note": "yellow"}


@click.command()
@click.option(
    "--watch", type=DURATION, is_flag=False, flag_value="2s", metavar="[EVERY]",
    help="Again and again, every 2s or so.",
)  # fmt: skip
@database_options
@output_option
def status(loaded: Loaded, watch: float | None, output: Output) -> int:
    """Show queues, supervisors and trouble. Counts stop at 100000."""
    with database.connect(loaded) as connection:
        _show(connection, output)
        while watch is not None:
            time.sleep(max(watch, 0.1))  # what --watch means
            if output.is_table:
                # Home, and clear what is below: a terminal that blinks cannot be read.
                data("\x1b[H\x1b[J" if is_terminal() else "")
            _show(connection, output)
    return ExitCode.DONE


def _show(connection: Connection, output: Output) -> None:
    facts = overview.facts(connection)
    output.one(facts, name="status", text=lambda: _text(facts))


def _text(facts: dict[str, Any]) -> str:
    headline = safe(overview.headline(facts))
    blocks = [headline if facts["supervisors"] else paint(headline, "red")]
    if troubles := overview.troubles(facts):
        blocks.append("\n".join(_trouble(one) for one in troubles))
    if facts["queues"]:
        titles = ["QUEUE", "STATE", "OLDEST DUE", *(state.upper() for state in queues.STATES)]
        rows = [
            [one["queue"], one["state"], queues.age(one), *queues.counts(one)]
            for one in facts["queues"]
        ]
        blocks.append(table(titles, rows))
    else:
        blocks.append("No job has been enqueued yet.")
    if facts["stuck"]:
        shown = [
            [row["id"], row["type"], row["host"], row["because"]]
            for row in facts["stuck"][:SHOWN_STUCK]
        ]
        many = len(facts["stuck"])
        more = f" (the first {SHOWN_STUCK} of {many})" if many > SHOWN_STUCK else ""
        stuck = table(["ID", "TYPE", "HOST", "BECAUSE"], shown, indent="  ")
        blocks.append(f"Looked after by nobody{more}:\n{stuck}")
    if facts["progress"]:
        now = datetime.fromisoformat(facts["at"])
        shown = [
            [row["id"], row["type"], since(now, row["started_at"]), words(row["progress"], now)]
            for row in facts["progress"][:SHOWN_PROGRESS]
        ]
        many = len(facts["progress"])
        more = f" (the first {SHOWN_PROGRESS})" if many > SHOWN_PROGRESS else ""
        far = table(["ID", "TYPE", "FOR", "PROGRESS"], shown, indent="  ")
        blocks.append(f"How far they are{more}:\n{far}")
    return "\n\n".join(blocks)


def _trouble(one: dict[str, Any]) -> str:
    words = paint(safe(one["trouble"]), SEVERITY_COLOURS[one["severity"]])
    mark = {"critical": "!!", "warning": "! ", "note": "  "}[one["severity"]]
    return f"{mark} {words}. {paint(safe(one['advice']), 'grey')}"
