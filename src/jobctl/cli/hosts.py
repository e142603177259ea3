"""`jobctl hosts`: the supervisors."""

from __future__ import annotations

import click

from jobctl.cli import database
from jobctl.cli.moments import since
from jobctl.cli.options import database_options
from jobctl.cli.output import Output, Row, output_option
from jobctl.store import reading
from jobctl.supervisor.settings_sources import Loaded

TITLES = ("HOST", "STATE", "BUSY", "SLOTS", "LEADER", "UP", "SEEN", "PID", "VERSION", "QUEUES")


@click.command()
@database_options
@output_option
def hosts(loaded: Loaded, output: Output) -> None:
    """List the supervisors that are there, or were lately."""
    with database.connect(loaded) as connection:
        rows = reading.hosts(connection)
        now = database.now(connection)

    def cells(row: Row) -> list[object]:
        return [
            row["host"],
            row["state"],
            row["busy"],
            row["slots"],
            "yes" if row["leader"] else "",
            since(now, row["started_at"]),
            since(now, row["renewed_at"]),
            row["pid"],
            row["version"],
            "all" if row["queues"] is None else ",".join(row["queues"]),
        ]

    output.rows(rows, name="host", titles=TITLES, cells=cells)
