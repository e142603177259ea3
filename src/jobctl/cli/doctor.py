"""`jobctl doctor`: what is wrong with the schema, and what to do."""

from __future__ import annotations

from dataclasses import asdict

import click

from jobctl.cli import database
from jobctl.cli.endings import ExitCode
from jobctl.cli.options import database_options
from jobctl.cli.output import Output, Row, output_option
from jobctl.store.health import examine
from jobctl.supervisor.settings_sources import Loaded


@click.command()
@database_options
@output_option
def doctor(loaded: Loaded, output: Output) -> int:
    """Examine the schema and say what to do; exit 3 if something is not as it should be."""
    with database.connect(loaded) as connection:
        findings = examine(connection)

    def cells(row: Row) -> list[object]:
        return [
            "fine" if row["fine"] else "WRONG",
            row["about"],
            row["fact"],
            "" if row["fine"] else row["advice"],
        ]

    titles = ("", "ABOUT", "FACT", "WHAT TO DO")
    output.rows([asdict(one) for one in findings], name="about", titles=titles, cells=cells)
    healthy = all(finding.fine for finding in findings)
    return ExitCode.DONE if healthy else ExitCode.NOT_HEALTHY
