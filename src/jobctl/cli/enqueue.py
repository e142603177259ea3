"""`jobctl enqueue`: one more job."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import Any

import click

from jobctl.cli import completion, database
from jobctl.cli.kinds import ID, read_json
from jobctl.cli.moments import DURATION, FUTURE
from jobctl.cli.options import database_options
from jobctl.cli.output import Output, output_option
from jobctl.supervisor.settings_sources import Loaded


@click.command()
@click.argument("type_", metavar="TYPE", shell_complete=completion.names("type"))
@click.argument("text", metavar="[JSON]", default="{}")
@click.option(
    "--key",
    metavar="KEY",
    help="What it is about; a living job of this type and key is not enqueued twice.",
)
@click.option("--subject", metavar="SUBJECT", help="What it belongs to; found by --subject.")
@click.option("--queue", metavar="QUEUE")
@click.option("--priority", type=click.IntRange(0, 3), help="3 runs first.")
@click.option("--delay", type=DURATION, help="Run it after so long.")
@click.option("--run-at", type=FUTURE, metavar="TIME", help="Run it then; a time with its zone.")
@click.option("--max-attempts", type=click.IntRange(1))
@click.option("--timeout", type=DURATION, help="Kill it after so long.")
@click.option(
    "--after", type=ID, metavar="ID", multiple=True, help="Run it when this job has succeeded."
)
@click.option(
    "--on-dead",
    type=click.Choice(["hold", "cancel"]),
    help="What becomes of it when a job of --after is dead or cancelled.",
)
@click.option("--limit", metavar="KEY", help="The limit that it keeps; see jobctl limits.")
@database_options
@output_option
def enqueue(
    loaded: Loaded,
    output: Output,
    type_: str,
    text: str,
    delay: float | None,
    run_at: datetime | None,
    **options: Any,
) -> None:
    """Enqueue a job and print its id. JSON is an object, the job's arguments; - reads it from
    stdin."""
    from jobctl.store.enqueue import enqueue as enqueue_job

    arguments = _arguments(text)
    # The application's own door, which finds the schema in the environment.
    os.environ["JOBCTL_SCHEMA"] = loaded.settings.schema
    with database.connect(loaded) as connection:
        job_id = enqueue_job(connection, type_, arguments, delay=delay, run_at=run_at, **options)
    output.one({"id": job_id}, name=job_id, text=lambda: str(job_id))


def _arguments(text: str) -> dict[str, Any]:
    if text == "-":
        text = sys.stdin.read()
    try:
        arguments = read_json(text)
    except ValueError as error:
        raise click.UsageError(
            f"The arguments are not JSON: {error}. They are an object in quotes, such as "
            "'{\"invoice_id\": 1842}'."
        ) from error
    if not isinstance(arguments, dict):
        raise click.UsageError(
            "The arguments must be a JSON object, such as '{\"invoice_id\": 1842}'."
        )
    return arguments
