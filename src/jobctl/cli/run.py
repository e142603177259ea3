"""`jobctl run`: the supervisor of this host."""

from __future__ import annotations

import os

import click

from jobctl.cli import database
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.options import settings_options
from jobctl.cli.output import say
from jobctl.store.dsn import DsnError, masked
from jobctl.supervisor.folders import FolderError
from jobctl.supervisor.notify import Notify
from jobctl.supervisor.pool_spec import absent_cpus
from jobctl.supervisor.settings import TABLE
from jobctl.supervisor.settings_sources import Loaded, find_dsn


@click.command()
@settings_options(*TABLE, wrong=ExitCode.CONFIGURATION)
def run(loaded: Loaded) -> int:
    """Run jobs on this host until told to stop.

    Without a DSN it starts the embedded PostgreSQL and brings its schema up to date. SIGTERM or
    Ctrl-C lets running jobs finish, SIGHUP loads new code, SIGQUIT stops at once.
    """
    notify = Notify.of(os.environ)  # before anything is started that could speak in our name
    from jobctl.supervisor import supervisor  # costs more than the other commands need

    if loaded.settings.app is None:
        raise Failure(
            ExitCode.CONFIGURATION,
            "No app is set: name the module that defines the jobs with --app shop.jobs, "
            "JOBCTL_APP, or app in jobctl.toml.",
        )
    if absent := list(absent_cpus(loaded.pools)):
        raise Failure(ExitCode.CONFIGURATION, "\n".join(absent))
    try:
        dsn = find_dsn(loaded.settings)
        dsn = _embedded(loaded) if dsn is None else dsn
        return supervisor.run(loaded.settings, dsn, loaded.crons, loaded.pools, notify)
    except (DsnError, FolderError) as error:
        raise Failure(ExitCode.CONFIGURATION, str(error)) from error


def _embedded(loaded: Loaded) -> str:
    """Starts the embedded PostgreSQL, says so, and returns its DSN."""
    from jobctl.store.migrate import migrate

    server = database.embedded(loaded)
    ran = server.pid() is not None
    dsn = server.start()
    applied = migrate(dsn, loaded.settings.schema)
    say(
        f"No database is set: using the embedded PostgreSQL in {server.root}, which "
        f"{'runs already' if ran else 'was started and goes on running (jobctl db stop ends it)'}."
    )
    if applied:
        say(f"Its schema {loaded.settings.schema} was brought up to {applied[-1].number:04}.")
    say(f"Others reach it at {masked(dsn)}")
    return dsn
