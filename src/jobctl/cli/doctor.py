"""`jobctl doctor`: what is wrong with the schema, and what to do; and what this host has."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict

import click

from jobctl.cli import database
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.here import peers_here
from jobctl.cli.options import DATABASE_SETTINGS, settings_options
from jobctl.cli.output import Output, Row, output_option
from jobctl.store.health import Finding, examine
from jobctl.supervisor.control import ControlError
from jobctl.supervisor.settings_sources import Loaded


@click.command()
@settings_options(*DATABASE_SETTINGS, "runtime_dir")
@output_option
def doctor(loaded: Loaded, output: Output) -> int:
    """Examine the schema and say what to do; exit 3 if something is not as it should be."""
    with database.connect(loaded) as connection:
        findings = examine(connection) + _groups_here(loaded)

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


def _groups_here(loaded: Loaded) -> list[Finding]:
    """What this host's supervisors have found; without control groups a kill goes other ways."""
    found: list[Finding] = []
    with suppress(Failure):  # there is none on this host
        for peer in peers_here(loaded):
            with suppress(ControlError):  # it has just left
                state = peer.ask("status")
                fact = f"{state['host']}: {state.get('control_groups') or 'not told'}"
                found.append(Finding("control groups", fine=True, fact=fact))
    return found
