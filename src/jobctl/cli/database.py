"""The database that a command means: the settings' own, or the embedded one if it runs.

A question never starts a server: who asks about a database that is not there should hear that.
"""

from __future__ import annotations

from datetime import datetime

import psycopg

from jobctl.cli.endings import ExitCode, Failure, first_line
from jobctl.store import reading
from jobctl.store.dsn import masked
from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.reading import Connection
from jobctl.store.refusals import advice, is_refusal
from jobctl.supervisor.settings_sources import Loaded, find_dsn

#: What PgBouncer answers to `options`, which every connection of ours has.
_POOLERS_WORDS = "unsupported startup parameter"


def find(loaded: Loaded) -> str:
    """The DSN. Raises Failure when none is set and the embedded server does not run."""
    dsn = find_dsn(loaded.settings)
    if dsn is not None:
        return dsn
    server = embedded(loaded)
    if server.pid() is None:
        raise Failure(
            ExitCode.DATABASE_UNREACHABLE,
            f"No database is set, and the embedded PostgreSQL in {server.root} does not run. Set "
            "JOBCTL_DSN (or --dsn, or dsn in jobctl.toml), or start it: jobctl db start",
        )
    return server.dsn()


def embedded(loaded: Loaded) -> EmbeddedPostgres:
    """The embedded server of these settings, running or not."""
    return EmbeddedPostgres(loaded.settings.state_dir)


def connect(loaded: Loaded) -> Connection:
    """A connection to it. Raises Failure when it cannot be reached, SchemaError when it does not
    hold our schema."""
    dsn = find(loaded)
    try:
        return reading.connect(dsn, loaded.settings.schema)
    except psycopg.OperationalError as error:
        raise unreachable(dsn, error) from error


def unreachable(dsn: str, error: psycopg.Error) -> Failure:
    """What to say when it does not answer."""
    where = f"at {masked(dsn)}" if dsn else "that PGHOST and its like name"
    if _POOLERS_WORDS in str(error):
        return Failure(
            ExitCode.DATABASE_UNREACHABLE,
            f"The PostgreSQL {where} is reached through a connection pooler, which refuses what "
            f"jobctl asks for ({first_line(error)}). Supervisors and this command need the DSN of "
            "PostgreSQL itself; applications may enqueue through the pooler.",
        )
    said = first_line(error)
    otherwise = (
        "See whether it runs and whether this is the database that is meant: "
        "jobctl config show --origin"
    )
    if is_refusal(said):
        return Failure(
            ExitCode.CONFIGURATION,
            f"The PostgreSQL {where} does not let us in: {said}. {advice(said) or otherwise}.",
        )
    return Failure(
        ExitCode.DATABASE_UNREACHABLE,
        f"The PostgreSQL {where} cannot be reached: {said}. {advice(said) or otherwise}.",
    )


def now(connection: Connection) -> datetime:
    """What the database's clock says."""
    return reading.clock(connection)
