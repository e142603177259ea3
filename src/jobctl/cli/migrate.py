"""`jobctl migrate`: brings the schema to what this code needs."""

from __future__ import annotations

from collections.abc import Sequence

import click
import psycopg

from jobctl.cli import database
from jobctl.cli.endings import ExitCode
from jobctl.cli.options import database_options
from jobctl.cli.output import Output, Row, data, output_option, say
from jobctl.store.durations import format_duration
from jobctl.supervisor.settings_sources import Loaded


@click.command()
@click.option("--plan", is_flag=True, help="Only say what would be applied.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL for psql; no database needed.")
@database_options
@output_option
def migrate(loaded: Loaded, plan: bool, as_sql: bool, output: Output) -> int:
    """Create or upgrade jobctl's tables. Safe to run from many hosts at once."""
    from jobctl.store import migrate as migrations

    if as_sql and plan:
        raise click.UsageError(
            "--sql asks no database, so it has no --plan: leave one of them out."
        )
    schema = loaded.settings.schema
    if as_sql:
        data(migrations.sql_text(schema))
        return ExitCode.DONE
    dsn = database.find(loaded)
    try:
        if plan:
            planned = [
                {"number": each.number, "name": each.name} for each in migrations.plan(dsn, schema)
            ]
            _print(output, planned, ["NUMBER", "NAME"])
            say(f"{_migrations(len(planned))} would be applied to schema {schema}.")
            return ExitCode.DONE
        applied = [
            {"number": each.number, "name": each.name, "seconds": round(each.seconds, 3)}
            for each in migrations.migrate(dsn, schema)
        ]
    except psycopg.OperationalError as error:
        raise database.unreachable(dsn, error) from error
    _print(output, applied, ["NUMBER", "NAME", "TOOK"])
    if applied:
        say(f"Schema {schema} is up to date; {_migrations(len(applied))} applied.")
    else:
        say(f"Schema {schema} was up to date already.")
    return ExitCode.DONE


def _print(output: Output, rows: Sequence[Row], titles: list[str]) -> None:
    if output.is_table and not rows:
        return

    def cells(row: Row) -> list[object]:
        known: list[object] = [f"{row['number']:04}", row["name"]]
        return [*known, format_duration(row["seconds"])] if "seconds" in row else known

    output.rows(rows, name="name", titles=titles, cells=cells)


def _migrations(many: int) -> str:
    return "1 migration" if many == 1 else f"{many} migrations"
