"""`jobctl cron`: what is planned, and an operator's hand on it.

Two verbs and no toggle: what two people disable at once is disabled. What hosts declare is changed
where they declare it; what an operator has added is added and removed here.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import click

from jobctl.cli import completion, database
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.kinds import TEXT, read_json
from jobctl.cli.moments import MOMENT, coarse, iso, since
from jobctl.cli.nouns import Noun
from jobctl.cli.options import database_options
from jobctl.cli.output import Output, Row, output_option, say
from jobctl.store import operating, reading
from jobctl.store.cron_spec import MISFIRE_LIMIT, MISFIRES, OVERLAPS, CronSpec
from jobctl.store.operating import Order
from jobctl.store.reading import Connection
from jobctl.store.schedule import Schedule, zone
from jobctl.supervisor.settings_sources import Loaded

TITLES = ("NAME", "STATE", "SCHEDULE", "ZONE", "MEANS", "NEXT", "LAST", "RESULT", "LAG", "FROM")
#: Due for longer than this and not fired: something is wrong.
LATE_SECONDS = 60.0

reason_option = click.option(
    "--reason", type=TEXT, metavar="TEXT", help="Why; kept in the audit log."
)


@click.group(cls=Noun)
def cron() -> None:
    """Jobs that run at certain times."""


@cron.command("list")
@database_options
@output_option
def list_(loaded: Loaded, output: Output) -> None:
    """List crons with their next and last firing."""
    with database.connect(loaded) as connection:
        rows = [_told(row) for row in reading.crons(connection)]
        now = database.now(connection)

    def cells(row: Row) -> list[object]:
        last = row["last_scheduled_for"]
        lag = row["last_lag_seconds"]
        return [
            row["name"],
            row["state"],
            row["schedule"],
            row["tz"],
            row["means"],
            "" if row["next_at"] is None else _in_zone(row["next_at"], row["tz"]),
            "" if last is None else f"{since(now, last)} ago",
            row["last_result"] or "",
            "" if lag is None or row["last_result"] not in ("fired", "skipped") else coarse(lag),
            row["origin"],
        ]

    output.rows(rows, name="name", titles=TITLES, cells=cells)


@cron.command()
@click.argument("name", type=TEXT, shell_complete=completion.names("cron"))
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option("--after", type=MOMENT, metavar="TIME", help="From then on, not from now.")
@click.option("--tz", type=TEXT, metavar="ZONE", help="In this zone, not its own.")
@database_options
@output_option
def preview(
    loaded: Loaded,
    name: str,
    count: int,
    after: datetime | timedelta | None,
    tz: str | None,
    output: Output,
) -> None:
    """Say when a cron will fire. NAME may also be a schedule, such as '30 2 * * *', with --tz."""
    with database.connect(loaded) as connection:
        now = database.now(connection)
        begin = now - after if isinstance(after, timedelta) else after or now
        schedule, jitter = _schedule(connection, name, tz)
    moments = list(islice(schedule.after(begin), count))
    rows = [
        {"at": moment, "local": moment.astimezone(zone(schedule.tz)).isoformat()}
        for moment in moments
    ]
    output.rows(
        rows,
        name="at",
        titles=("UTC", schedule.tz, "IN"),
        cells=lambda row: [
            iso(row["at"]), _in_zone(row["at"], schedule.tz), since(now, row["at"]),
        ],
    )  # fmt: skip
    if jitter and output.is_table:
        say(f"Each job is delayed by up to {coarse(jitter)} more (jitter).")


@cron.command()
@click.argument("name", type=TEXT, shell_complete=completion.names("cron"))
@reason_option
@database_options
@output_option
def run(loaded: Loaded, name: str, reason: str | None, output: Output) -> None:
    """Enqueue its job now, also of a disabled one, and print the job's id."""
    with database.connect(loaded) as connection:
        job_id = operating.run_cron(connection, name, Order.by_me(reason, {}))
        if job_id is None:
            raise _no_such(connection, name)
    output.one({"id": job_id}, name=job_id, text=lambda: str(job_id))


@cron.command()
@click.argument("name", type=TEXT, shell_complete=completion.names("cron"))
@reason_option
@database_options
def enable(loaded: Loaded, name: str, reason: str | None) -> None:
    """Let it fire again, from now on: what was planned meanwhile is not made up for."""
    _switch(loaded, name, reason, enable=True)


@cron.command()
@click.argument("name", type=TEXT, shell_complete=completion.names("cron"))
@reason_option
@database_options
def disable(loaded: Loaded, name: str, reason: str | None) -> None:
    """Let it fire no more, whatever is deployed, until somebody enables it."""
    _switch(loaded, name, reason, enable=False)


@cron.command()
@click.argument("name", type=TEXT)
@click.argument("schedule", type=TEXT)
@click.argument("type_", type=TEXT, metavar="TYPE")
@click.argument("arguments", type=TEXT, metavar="[JSON]", default="{}")
@click.option("--tz", type=TEXT, metavar="ZONE", default="UTC", show_default=True)
@click.option(
    "--misfire", type=click.Choice(MISFIRES), default="skip", show_default=True,
    help="What about planned times that passed while nobody could fire.",
)  # fmt: skip
@click.option("--misfire-limit", type=int, default=MISFIRE_LIMIT, show_default=True)
@click.option("--jitter", type=TEXT, metavar="DURATION", default="0", show_default=True)
@click.option("--overlap", type=click.Choice(OVERLAPS), default="allow", show_default=True)
@reason_option
@database_options
def add(
    loaded: Loaded, name: str, type_: str, arguments: str, reason: str | None, **words: Any
) -> None:
    """Add a cron that only the database knows. JSON is an object, the job's arguments."""
    try:
        args = _json(arguments)
        spec = CronSpec.from_words({"name": name, "type": type_, "args": args, **words}, "database")
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error
    with database.connect(loaded) as connection:
        if not operating.add_cron(connection, spec, Order.by_me(reason, {})):
            raise Failure(
                ExitCode.FAILED,
                f"There is a cron {name} already; it was left as it is. See jobctl cron list",
            )
        first = spec.moments.next(database.now(connection))
    say(f"Added {name}." + ("" if first is None else f" It fires next at {iso(first)}."))


@cron.command()
@click.argument("name", type=TEXT, shell_complete=completion.names("cron"))
@click.option("--yes", is_flag=True, help="Do not ask.")
@reason_option
@database_options
def remove(loaded: Loaded, name: str, yes: bool, reason: str | None) -> None:
    """Remove a cron that was added. What hosts declare is removed where they declare it."""
    with database.connect(loaded) as connection:
        rows = reading.crons(connection, name)
        if not rows:
            raise _no_such(connection, name)
        if rows[0]["origin"] != "database":
            raise Failure(
                ExitCode.FAILED,
                f"{name} is declared by {_where(rows[0]['origin'])}: remove it there, or stop it "
                f"here with jobctl cron disable {name}",
            )
        if not yes:
            if not sys.stdin.isatty():
                raise Failure(
                    ExitCode.USAGE, "Nobody is there to confirm; nothing was changed. Add --yes."
                )
            click.confirm(f"Remove the cron {name}?", abort=True, err=True)
        operating.remove_cron(connection, name, Order.by_me(reason, {}))
    say(f"Removed {name}.")


def _switch(loaded: Loaded, name: str, reason: str | None, *, enable: bool) -> None:
    word = "enabled" if enable else "disabled"
    with database.connect(loaded) as connection:
        if operating.switch_cron(connection, name, Order.by_me(reason, {}), enable=enable):
            say(f"{name} is {word}.")
        elif reading.crons(connection, name):
            say(f"{name} was {word} already.")
        else:
            raise _no_such(connection, name)


def _told(row: Row) -> dict[str, Any]:
    """A row of the view, with a plain word for how it stands and what its schedule means."""
    told = dict(row)
    if row["state"] == "enabled" and (row["overdue_seconds"] or 0) > LATE_SECONDS:
        told["state"] = "late"
    try:
        told["means"] = Schedule(row["schedule"], row["tz"]).in_words()
    except ValueError:  # of newer code than this, perhaps
        told["means"] = None
    return told


def _schedule(connection: Connection, name: str, tz: str | None) -> tuple[Schedule, float]:
    rows = reading.crons(connection, name)
    if not rows and " " not in name and not name.startswith("@"):
        raise _no_such(connection, name)
    try:
        if rows:
            return Schedule(rows[0]["schedule"], tz or rows[0]["tz"]), rows[0]["jitter_seconds"]
        return Schedule(name, tz or "UTC"), 0.0
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error


def _no_such(connection: Connection, name: str) -> Failure:
    known = ", ".join(row["name"] for row in reading.crons(connection)[:20])
    which = f"there are: {known}" if known else "there is none yet"
    return Failure(ExitCode.NO_SUCH_THING, f"There is no cron {name}; {which}.")


def _where(origin: str) -> str:
    return "the application's code" if origin == "code" else "the jobctl.toml of a host"


def _in_zone(moment: datetime, tz: str) -> str:
    return moment.astimezone(zone(tz)).strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise ValueError(f"the arguments are not JSON: {error}") from error
