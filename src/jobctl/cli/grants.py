"""`jobctl grants`: database roles with as few rights as they need, as SQL or applied."""

from __future__ import annotations

from collections.abc import Sequence

import click
import psycopg

from jobctl.cli import database
from jobctl.cli.endings import ExitCode
from jobctl.cli.kinds import TEXT
from jobctl.cli.options import Command, database_options
from jobctl.cli.output import data, say
from jobctl.store.rights import SEES_OTHERS, USUAL_NAMES, WHO_SHOULD_SEE, Kind
from jobctl.supervisor.settings_sources import Loaded

_FOR = {
    Kind.PRODUCER: "Applications that enqueue.",
    Kind.WORKER: "Supervisors.",
    Kind.OPERATOR: "People who intervene.",
    Kind.READ_ONLY: "People and dashboards that look.",
}
_A = {
    Kind.PRODUCER: "a producer",
    Kind.WORKER: "a worker",
    Kind.OPERATOR: "an operator",
    Kind.READ_ONLY: "a read-only role",
}


def _roles(command: Command) -> Command:
    for kind in reversed(Kind):
        words = f"{_FOR[kind]} Can be given several times."
        option = click.option(f"--{kind}", type=TEXT, metavar="ROLE", multiple=True, help=words)
        command = option(command)
    return command


@click.command()
@_roles
@click.option("--apply", "now", is_flag=True, help="Do it, instead of printing it.")
@database_options
def grants(loaded: Loaded, now: bool, **named: Sequence[str]) -> int:
    """Print the SQL that gives database roles the rights of their kind and takes all others.

    Without a name: four roles called jobctl_producer, jobctl_worker, jobctl_operator and
    jobctl_read_only. Roles that are missing are made, without a login; let users be members of
    them. Can be run again; migrating does it for what is new.
    """
    from jobctl.store import grants as store

    roles = [(role, kind) for kind in Kind for role in named[kind.replace("-", "_")]]
    roles = roles or [(role, kind) for kind, role in USUAL_NAMES.items()]
    schema = loaded.settings.schema
    try:
        text = store.grants_text(roles, schema)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error
    if not now:
        data(text.rstrip())
        return ExitCode.DONE
    dsn = database.find(loaded)
    try:
        made = store.grant(dsn, roles, schema)
    except psycopg.OperationalError as error:
        raise database.unreachable(dsn, error) from error
    for role, kind in roles:
        what = _A[kind]
        say(f"{role} {'was made and is' if role in made else 'is'} {what} of schema {schema}.")
    blind = [role for role, kind in roles if kind in WHO_SHOULD_SEE]
    if blind:
        names = ", ".join(store.quoted(role) for role in blind)
        say(
            "So that they see old transactions of others, let a superuser run: "
            f"GRANT {SEES_OTHERS} TO {names};"
        )
    return ExitCode.DONE
