"""Does this database hold the schema that this code needs?

The code knows its migrations, the database remembers which were applied. They agree, or the schema
is ahead within the range that it declares compatible (a deploy has migrated before this host was
restarted), or it is a SchemaError that says what to do. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from jobctl.store.errors import SchemaError
from jobctl.store.migration_files import Migration, ours
from jobctl.store.rights import remedy
from jobctl.store.schema_name import DEFAULT_SCHEMA, checked_schema_name
from jobctl.store.statements import sql as statement

#: A text of a migration and its twin, by sha256: 0011_trace went out with two digests of functions
#: in its header, and nothing else between them. 0012 brings the functions anyway.
TWINS = {
    "c0a115f1b73c1bf0e9b32c8efc7e310461b47a7988c81ccd4a2471379ccb5c36": (
        "196bdb472c90fb1db1592dc6a44097ae1cf52ab0c08091b955d9d37953d36b33"
    ),
}


class Recorded(NamedTuple):
    """A row of table `migration`."""

    number: int
    name: str
    sha256: str
    compatible_from: int


def check(
    connection: psycopg.Connection[Any],
    schema: str = DEFAULT_SCHEMA,
    files: Sequence[Migration] | None = None,
) -> None:
    """Returns if this code can work with what is there. Raises SchemaError if not."""
    _require(pending(recorded(connection, schema), files or ours(), schema), schema)


async def acheck(
    connection: psycopg.AsyncConnection[Any],
    schema: str = DEFAULT_SCHEMA,
    files: Sequence[Migration] | None = None,
) -> None:
    """`check` for an async connection."""
    rows: list[Recorded] = []
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(statement("migration_state"), {"schema": checked_schema_name(schema)})
        state = await cursor.fetchone()
        if state is not None and state[1]:
            try:
                await cursor.execute(qualified("migration_rows", schema))
            except psycopg.errors.InsufficientPrivilege as error:
                raise _forbidden(schema, error) from error
            rows = [Recorded(*row) async for row in cursor]
    _require(pending(rows, files or ours(), schema), schema)


def recorded(connection: psycopg.Connection[Any], schema: str) -> list[Recorded]:
    """What the database remembers; nothing when there is no schema yet."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(statement("migration_state"), {"schema": checked_schema_name(schema)})
        state = cursor.fetchone()
        if state is None or not state[1]:
            return []
        try:
            cursor.execute(qualified("migration_rows", schema))
        except psycopg.errors.InsufficientPrivilege as error:
            raise _forbidden(schema, error) from error
        return [Recorded(*row) for row in cursor]


def pending(
    rows: Sequence[Recorded], files: Sequence[Migration], schema: str
) -> Sequence[Migration]:
    """The files still to be applied. Raises SchemaError for a schema that no migrating helps."""
    newest = files[-1].number
    by_number = {row.number: row for row in rows}
    missing = sorted(set(range(1, max(by_number, default=0) + 1)) - by_number.keys())
    if missing:
        raise SchemaError(
            f'schema "{schema}" has a gap: migration {missing[0]} was never recorded, later ones '
            "were. Somebody changed its table migration by hand: restore the schema from a backup, "
            "or make a new one"
        )
    for file in files:
        row = by_number.get(file.number)
        if row is not None and row.sha256 not in (file.sha256, TWINS.get(file.sha256)):
            raise SchemaError(
                f'schema "{schema}" was made by another text of migration {row.number:04}_'
                f"{row.name} than this code's {file.label} (sha256 {row.sha256[:12]}, not "
                f"{file.sha256[:12]}). Install the release of jobctl that made it, or use another "
                "schema; a released migration must never be edited"
            )
    ahead = [row for row in rows if row.number > newest]
    oldest = max((row.compatible_from for row in ahead), default=0)
    if oldest > newest:
        raise SchemaError(
            f'schema "{schema}" is at {ahead[-1].number}, which needs code that knows migration '
            f"{oldest}; this code knows {newest}. Install the newer release of jobctl on this "
            "host"
        )
    return [file for file in files if file.number not in by_number]


def qualified(name: str, schema: str, *, parameters: bool = False) -> sql.Composed:
    """A statement that names our schema itself, whatever the connection's search_path is.

    `parameters`: it is executed with some, so psycopg reads a % as the start of one.
    """
    written = schema.replace("%", "%%") if parameters else schema
    return sql.SQL(statement(name)).format(schema=sql.Identifier(written))


def _require(files: Sequence[Migration], schema: str) -> None:
    if not files:
        return
    option = "" if schema == DEFAULT_SCHEMA else f" (with JOBCTL_SCHEMA={schema})"
    if files[0].number == 1:
        raise SchemaError(f'this database has no schema "{schema}": run jobctl migrate{option}')
    raise SchemaError(
        f'schema "{schema}" is at {files[0].number - 1}, this code needs {files[-1].number}: '
        f"run jobctl migrate{option}"
    )


def _forbidden(schema: str, error: psycopg.Error) -> SchemaError:
    return SchemaError(
        f'this database user may not read schema "{schema}" ({error.diag.message_primary}). '
        f"{remedy()}"
    )
