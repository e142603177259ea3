"""`jobctl status`: what waits, what runs, and what is wrong."""

from __future__ import annotations

import time
from typing import Any

import click

from jobctl.cli import database, queues
from jobctl.cli.endings import ExitCode
from jobctl.cli.moments import DURATION, iso
from jobctl.cli.options import database_options
from jobctl.cli.output import Output, data, output_option
from jobctl.cli.table import is_terminal, paint, safe, table
from jobctl.store import reading
from jobctl.store.reading import Connection
from jobctl.supervisor.settings_sources import Loaded

SHOWN_STUCK = 10


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
            time.sleep(max(watch, 0.1))
            if output.is_table:
                # Home, and clear what is below: a terminal that blinks cannot be read.
                data("\x1b[H\x1b[J" if is_terminal() else "")
            _show(connection, output)
    return ExitCode.DONE


def _show(connection: Connection, output: Output) -> None:
    facts = _facts(connection)
    output.one(facts, name="status", text=lambda: _text(facts))


def _facts(connection: Connection) -> dict[str, Any]:
    hosts = [row for row in reading.hosts(connection) if row["state"] != "dead"]
    live = [row for row in hosts if row["state"] != "silent"]
    leader = next((row["host"] for row in live if row["leader"]), None)
    return {
        "at": iso(database.now(connection)),
        "queues": queues.facts(connection),
        "supervisors": len(live),
        "slots": sum(row["slots"] for row in live),
        "busy": sum(row["busy"] for row in live),
        "draining": [row["host"] for row in live if row["state"] in ("draining", "drained")],
        "not_ready": [row["host"] for row in hosts if row["state"] == "not ready"],
        "silent": [row["host"] for row in hosts if row["state"] == "silent"],
        "leader": leader,
        "stuck": reading.stuck(connection),
        "unrunnable": reading.unrunnable(connection),
    }


def _text(facts: dict[str, Any]) -> str:
    blocks = [_supervisors(facts)]
    if facts["queues"]:
        titles = ["QUEUE", "STATE", "OLDEST DUE", *(state.upper() for state in queues.STATES)]
        blocks.append(table(titles, [_cells(queue) for queue in facts["queues"]]))
    else:
        blocks.append("No job has been enqueued yet.")
    if facts["unrunnable"]:
        rows = [
            [f"{row['type']}@{row['schema_version']}", row["queue"], row["jobs"], row["because"]]
            for row in facts["unrunnable"]
        ]
        blocks.append(
            paint("Jobs that nobody can run:", "red")
            + "\n"
            + table(["TYPE", "QUEUE", "JOBS", "BECAUSE"], rows, indent="  ")
        )
    if facts["stuck"]:
        rows = [
            [row["id"], row["type"], row["host"], row["because"]]
            for row in facts["stuck"][:SHOWN_STUCK]
        ]
        many = len(facts["stuck"])
        more = f" (the first {SHOWN_STUCK} of {many})" if many > SHOWN_STUCK else ""
        blocks.append(
            paint(f"Stuck jobs{more}; the leader reclaims them:", "red")
            + "\n"
            + table(["ID", "TYPE", "HOST", "BECAUSE"], rows, indent="  ")
        )
    return "\n\n".join(blocks)


def _supervisors(facts: dict[str, Any]) -> str:
    if not facts["supervisors"]:
        line = paint("No supervisor is running: nothing is worked on.", "red")
    else:
        many = facts["supervisors"]
        line = (
            f"{many} supervisor{'' if many == 1 else 's'}, {facts['busy']} of {facts['slots']} "
            f"slots busy, leader: {safe(facts['leader'] or 'none yet')}"
        )
    lines = [line]
    if facts["draining"]:
        lines.append(paint(f"Draining: {safe(', '.join(facts['draining']))}", "yellow"))
    if facts["not_ready"]:
        line = f"Not ready, see their logs: {safe(', '.join(facts['not_ready']))}"
        lines.append(paint(line, "red"))
    if facts["silent"]:
        lines.append(paint(f"Silent: {safe(', '.join(facts['silent']))}", "red"))
    return "\n".join(lines)


def _cells(queue: dict[str, Any]) -> list[object]:
    return [queue["queue"], queue["state"], queues.age(queue), *queues.counts(queue)]
