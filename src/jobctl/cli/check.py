"""`jobctl check`: one line and an exit code for a monitoring system that speaks Nagios.

0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. A database that does not answer is CRITICAL, because then no
job starts; whatever keeps this command from finding out - an option, a setting, a schema that it
does not know - is UNKNOWN. It always prints its line, on standard output, and it always ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
import psycopg

from jobctl.cli import completion, database, queues
from jobctl.cli.endings import ExitCode, Failure, explain, first_line
from jobctl.cli.kinds import TEXT
from jobctl.cli.measures import MEASURES, Fleet, Level, Measure, Reading, take
from jobctl.cli.moments import DURATION, coarse
from jobctl.cli.options import database_options
from jobctl.cli.output import data
from jobctl.cli.patience import PatienceOver, patience
from jobctl.cli.table import safe
from jobctl.store import reading
from jobctl.store.dsn import masked
from jobctl.store.reading import Connection
from jobctl.supervisor.settings_sources import Loaded

#: A function with click's options on it.
Command = Callable[..., Any]


class NagiosCommand(click.Command):
    """Whatever goes wrong is one line and one of four codes, mistakes in typing included."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As click's; a wrong option is UNKNOWN, not the 2 that means CRITICAL here."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            data(_line(Level.UNKNOWN, error.format_message()))
            raise click.exceptions.Exit(Level.UNKNOWN) from error

    def invoke(self, ctx: click.Context) -> int:
        """As click's, with an answer for whatever is raised."""
        try:
            level: int = super().invoke(ctx)
        except click.UsageError as error:
            level = _ended(Level.UNKNOWN, error.format_message())
        except PatienceOver:
            level = _ended(
                Level.CRITICAL,
                f"PostgreSQL has not answered within {coarse(ctx.params['timeout'])}",
            )
        except Exception as error:
            failure = explain(error)
            if failure is None:
                words = f"{type(error).__name__}: {first_line(error)}"
                return _ended(Level.UNKNOWN, f"an error that nobody foresaw: {words}")
            away = failure.code == ExitCode.DATABASE_UNREACHABLE
            sentence = " ".join(failure.sentences)
            level = _ended(Level.CRITICAL if away else Level.UNKNOWN, sentence)
        return level


def _threshold_options(command: Command) -> Command:
    for measure in reversed(MEASURES):
        kind: click.ParamType[Any] = DURATION if measure.seconds else click.INT
        for level in ("critical", "warning"):
            command = click.option(
                f"--{measure.name}-{level}", type=kind, default=getattr(measure, level),
                show_default=True, metavar="TIME" if measure.seconds else "N",
                help=measure.help if level == "warning" else "The same, for CRITICAL.",
            )(command)  # fmt: skip
    return command


@click.command(cls=NagiosCommand)
@click.option(
    "--queue",
    "only",
    multiple=True,
    type=TEXT,
    metavar="QUEUE",
    help="Only of these.",
    shell_complete=completion.names("queue"),
)
@click.option(
    "--host",
    type=TEXT,
    metavar="HOST",
    help="CRITICAL unless this host works.",
    shell_complete=completion.names("host"),
)
@_threshold_options
@click.option(
    "--dead-within", type=DURATION, default="1h", show_default=True, metavar="TIME",
    help="What lately is.",
)  # fmt: skip
@click.option(
    "--timeout", type=DURATION, default="10s", show_default=True,
    help="CRITICAL if PostgreSQL has not answered by then.",
)  # fmt: skip
@database_options
def check(
    loaded: Loaded, only: tuple[str, ...], host: str | None, dead_within: float, timeout: float,
    **typed: float,
) -> int:  # fmt: skip
    """Say in one line whether jobs are worked on, for Nagios and its like.

    Exits with 0 (OK), 1 (WARNING), 2 (CRITICAL) or 3 (UNKNOWN); performance data follow the bar. A
    threshold of 0 never alerts.
    """
    thresholds = {each.name: _pair(each, typed) for each in MEASURES}
    with patience(max(timeout, 0.1)), _connected(loaded) as connection:
        told = queues.facts(connection)
        _require_known(only, [row["queue"] for row in told])
        readings, fleet = take(
            connection, thresholds, queues=told, only=only, dead_within=dead_within
        )
        missing = None if host is None else _missing(connection, host)
    return _tell(readings, fleet, missing)


def _pair(measure: Measure, typed: dict[str, float]) -> tuple[float, float]:
    return typed[f"{measure.name}_warning"], typed[f"{measure.name}_critical"]


def _connected(loaded: Loaded) -> Connection:
    dsn = database.find(loaded)
    try:
        return reading.connect(dsn, loaded.settings.schema)
    except psycopg.OperationalError as error:
        where = masked(dsn) if dsn else "PGHOST and its like"
        sentence = f"PostgreSQL ({where}) cannot be reached: {first_line(error)}"
        raise Failure(ExitCode.DATABASE_UNREACHABLE, sentence) from error


def _require_known(names: Sequence[str], known: Sequence[str]) -> None:
    """A misspelt queue would be OK for ever."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.UsageError(f"no job was ever in a queue {', '.join(unknown)}")


def _missing(connection: Connection, host: str) -> str | None:
    """What is wrong with this host."""
    states = {row["state"] for row in reading.hosts(connection) if row["host"] == host}
    if "working" in states:
        return None
    return f"{host} is {' and '.join(sorted(states)) or 'not there'}"


def _tell(readings: Sequence[Reading], fleet: Fleet, missing: str | None) -> int:
    worst = max(one.level for one in readings)
    bad = sorted((one for one in readings if one.level), key=lambda one: -one.level)
    words = [one.words for one in bad]
    if missing is not None:
        worst = Level.CRITICAL
        words.insert(0, missing)
    if not words:
        supervisors = f"{fleet.working} supervisor{'' if fleet.working == 1 else 's'} working"
        words = [f"{supervisors}, {fleet.busy} of {fleet.slots} slots busy"]
    perfdata = [one.perfdata for one in readings] + [f"busy={fleet.busy};;;0;{fleet.slots}"]
    data(f"{_line(worst, '; '.join(words))} | {' '.join(perfdata)}")
    return worst


def _line(level: Level, words: str) -> str:
    # A bar would begin the performance data, and a newline the long text.
    return f"JOBCTL {level.name}: {safe(' '.join(words.split())).replace('|', '/')}"


def _ended(level: Level, words: str) -> int:
    data(_line(level, words))
    return level
