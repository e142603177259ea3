"""`jobctl explain`: why a job is not running, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict

import click

from jobctl.cli import database
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.jobs import no_such_job
from jobctl.cli.kinds import ID
from jobctl.cli.options import database_options
from jobctl.cli.output import Output, output_option
from jobctl.cli.table import STATE_COLOURS, paint, safe
from jobctl.store import explanation
from jobctl.store.explanation import Explanation
from jobctl.supervisor.settings_sources import Loaded


@click.command()
@click.argument("job_id", metavar="ID", type=ID)
@database_options
@output_option
def explain(loaded: Loaded, job_id: int, output: Output) -> None:
    """Say why a job is not running: the one cause that holds it up, and what to do."""
    with database.connect(loaded) as connection:
        found = explanation.explain(connection, job_id)
    if found is None:
        raise Failure(ExitCode.NO_SUCH_THING, no_such_job(job_id))
    facts = {"id": job_id, **{name: word for name, word in asdict(found).items() if name != "job"}}
    output.one(facts, name=found.cause, text=lambda: _text(found))


def _text(found: Explanation) -> str:
    state = paint(found.state, STATE_COLOURS.get(found.state))
    number = paint(f"#{found.job}", "bold")
    lines = [f"{number} {safe(found.type)} is {state}: {safe(found.because)}."]
    if found.also:
        lines.append(f"And then: {safe(found.also)}.")
    lines.append(f"What to do: {safe(found.advice)}.")
    return "\n".join(lines)
