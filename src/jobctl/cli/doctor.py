"""`jobctl doctor`: what is wrong with the schema, PostgreSQL and this host, and what to do."""

from __future__ import annotations

from dataclasses import asdict

import click

from jobctl.cli import database, host_health
from jobctl.cli.endings import ExitCode
from jobctl.cli.options import DATABASE_SETTINGS, settings_options
from jobctl.cli.output import Output, data, output_option
from jobctl.cli.table import paint, safe
from jobctl.store import access, health, server_health
from jobctl.store.finding import Finding, Level
from jobctl.store.reading import Connection
from jobctl.supervisor.settings_sources import Loaded

_COLOURS = {Level.WRONG: "red", Level.NOTE: "yellow", Level.FINE: "green"}


@click.command()
@settings_options(*DATABASE_SETTINGS, "runtime_dir")
@output_option
def doctor(loaded: Loaded, output: Output) -> int:
    """Examine schema, PostgreSQL and this host; exit 3 if something is not as it should be."""
    with database.connect(loaded) as connection:
        findings = _examine(loaded, connection)
    rows = [{**asdict(one), "fine": one.fine} for one in findings]
    if output.is_table:
        data("\n".join(line for one in findings for line in _lines(one)))
    else:
        output.rows(rows, name="about", titles=(), cells=list)
    healthy = all(one.fine for one in findings)
    return ExitCode.DONE if healthy else ExitCode.NOT_HEALTHY


def _examine(loaded: Loaded, connection: Connection) -> list[Finding]:
    pooler = server_health.pooler(connection)
    if not pooler.fine:
        return [pooler]
    return [
        *health.examine(connection),
        pooler,
        *access.examine(connection, loaded.settings.schema),
        *server_health.examine(connection),
        *host_health.examine(loaded, connection),
    ]


def _lines(one: Finding) -> list[str]:
    """What was found, and below it what to do: too long for a table, too important to be cut."""
    level = paint(f"{one.level:<5}", _COLOURS[one.level])
    lines = [f"{level}  {one.about:<12}  {safe(one.fact)}"]
    if one.advice:
        lines.append(f"{'':<21}{safe(one.advice)}")
    return lines
