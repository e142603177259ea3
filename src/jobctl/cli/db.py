"""`jobctl db`: the embedded PostgreSQL."""

from __future__ import annotations

import os

import click

from jobctl.cli import database
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.nouns import Noun
from jobctl.cli.options import database_options, settings_options
from jobctl.cli.output import Output, data, output_option, say
from jobctl.supervisor.settings_sources import Loaded


@click.group(cls=Noun)
def db() -> None:
    """The PostgreSQL that comes along: start, stop, and get into it."""


@db.command()
@settings_options("schema", "state_dir")
@output_option
def start(loaded: Loaded, output: Output) -> None:
    """Start it, bring its schema up to date, and print its DSN."""
    from jobctl.store.migrate import migrate

    server = database.embedded(loaded)
    ran = server.pid() is not None
    dsn = server.start()
    migrate(dsn, loaded.settings.schema)
    said = "runs already" if ran else "was started and goes on running (jobctl db stop ends it)"
    say(f"The embedded PostgreSQL in {server.root} {said}.")
    output.one({"dsn": dsn, "pid": server.pid(), "folder": server.root}, name=dsn, text=lambda: dsn)


@db.command()
@settings_options("state_dir")
def stop(loaded: Loaded) -> int:
    """Stop it; its data stay."""
    server = database.embedded(loaded)
    if server.pid() is None:
        say(f"The embedded PostgreSQL in {server.root} does not run.")
        return ExitCode.DONE
    server.stop()
    say(f"The embedded PostgreSQL in {server.root} was stopped.")
    return ExitCode.DONE


@db.command()
@settings_options("state_dir")
def dsn(loaded: Loaded) -> int:
    """Print its DSN, whether it runs or not."""
    server = database.embedded(loaded)
    data(server.dsn())
    if server.pid() is None:
        say("It does not run; start it: jobctl db start")
        return ExitCode.NOT_HEALTHY
    return ExitCode.DONE


@db.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@database_options
def psql(loaded: Loaded, arguments: tuple[str, ...]) -> None:
    """Open psql on the database that the settings name. ARGUMENTS are psql's."""
    from jobctl.store import binaries
    from jobctl.store.dsn import conninfo

    where = conninfo(
        database.find(loaded), schema=loaded.settings.schema, application_name="jobctl db psql"
    )
    try:
        program = str(binaries.find().program("psql"))
    except binaries.EmbeddedError:
        program = "psql"
    # Passwords must not be seen in the list of processes: libpq reads everything from variables.
    environment = {**os.environ, **_variables(where)}
    try:
        os.execvpe(program, ["psql", *arguments], environment)  # noqa: S606 - that is the command
    except OSError as error:
        raise Failure(
            ExitCode.FAILED,
            f"psql cannot be started: {error.strerror}. Install PostgreSQL's client.",
        ) from error


def _variables(conninfo: str) -> dict[str, str]:
    """libpq's environment variables that say what a conninfo says, as far as there are any."""
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import Conninfo

    said = conninfo_to_dict(conninfo)
    return {
        option.envvar.decode(): str(said[option.keyword.decode()])
        for option in Conninfo.get_defaults()
        if option.envvar and option.keyword.decode() in said
    }
