"""`jobctl bench`: how fast this machine, this PostgreSQL and this version are together."""

from __future__ import annotations

import json
import signal
from typing import Any

import click

from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.options import settings_options
from jobctl.cli.output import say
from jobctl.supervisor.settings_sources import Loaded, find_dsn


@click.command()
@settings_options("dsn", "dsn_file", wrong=ExitCode.USAGE)
@click.option(
    "--jobs",
    type=click.IntRange(100, 5_000_000),
    default=50_000,
    show_default=True,
    help="Jobs to drain.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 200),
    default=8,
    show_default=True,
    help="Slots to drain them with.",
)
@click.option(
    "--old-snapshot", is_flag=True, help="Another session holds an old snapshot meanwhile."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bench(loaded: Loaded, jobs: int, slots: int, old_snapshot: bool, as_json: bool) -> int:
    """Measure jobs a second, latency, CPU and memory.

    Without a DSN it uses an embedded PostgreSQL of its own with PostgreSQL's default settings,
    which is gone afterwards; with one, a schema of its own, dropped afterwards.
    """
    from jobctl.bench import bench as benchmark  # costs more than the other commands need

    # Its servers and supervisors are sessions of their own: whoever ends it must let it end them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = benchmark.run(
            benchmark.Options(jobs, slots, find_dsn(loaded.settings), old_snapshot), say
        )
    except benchmark.BenchError as error:
        raise Failure(ExitCode.FAILED, str(error)) from error
    click.echo(json.dumps(result, indent=2) if as_json else _table(result))
    return ExitCode.DONE


def _table(result: dict[str, Any]) -> str:
    lines = []
    for name, value in result.items():
        if isinstance(value, dict):
            inner = "  ".join(f"{key} {each}" for key, each in value.items())
            lines.append(f"{name:24} {inner}")
        else:
            lines.append(f"{name:24} {value}")
    return "\n".join(lines)
