"""Migrating: brings a schema to what this code needs, by any number of hosts at once.

One of them has its turn (an advisory lock that is polled, never waited for), the others find the
work done. Each migration is one transaction together with its row in table `migration`: killed
half-way, it never was. A lock that does not come within seconds is given up and tried again,
because everybody who comes after us in that queue waits with us. A direct connection is needed: a
pooler would give the lock to somebody else.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from time import monotonic, sleep
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import sql

from jobctl.store import grants
from jobctl.store.dsn import conninfo
from jobctl.store.errors import SchemaError
from jobctl.store.migration_files import Migration, ours
from jobctl.store.schema_check import acheck, check, pending, qualified, recorded
from jobctl.store.schema_name import DEFAULT_SCHEMA, checked_schema_name
from jobctl.store.statements import sql as statement

__all__ = ["Applied", "SchemaError", "acheck", "check", "migrate", "plan", "sql_text"]

#: How long others may have their turn before we give up.
PATIENCE_SECONDS = 600.0
LOCK_TIMEOUT = "3s"
LOCK_TRIES = 20
_OLDEST_SERVER = 140_000

_log = logging.getLogger(__name__)
_Connection = psycopg.Connection[tuple[Any, ...]]


class Applied(NamedTuple):
    """A migration that this call applied, and how long it took."""

    number: int
    name: str
    seconds: float


def migrate(
    dsn: str,
    schema: str = DEFAULT_SCHEMA,
    *,
    files: Sequence[Migration] | None = None,
    patience: float = PATIENCE_SECONDS,
) -> list[Applied]:
    """Applies what is missing and returns it, in order; nothing when all is there. The roles that
    `jobctl grants` knows get their rights on what is new.

    Raises SchemaError when the schema cannot become what this code needs, when a migration fails
    (nothing of it stays), or when others take longer than `patience` seconds; psycopg's
    OperationalError when the database cannot be reached.
    """
    wanted = files or ours()
    with _connect(dsn, schema) as connection:
        if not pending(recorded(connection, schema), wanted, schema) and not grants.incomplete(
            connection, schema
        ):
            return []
        _take_turn(connection, schema, patience)
        _lay_ground(connection, schema)
        missing = pending(recorded(connection, schema), wanted, schema)
        done = [_apply(connection, migration, schema) for migration in missing]
        _grant_again(connection, schema)
        return [applied for applied in done if applied is not None]


def plan(
    dsn: str, schema: str = DEFAULT_SCHEMA, *, files: Sequence[Migration] | None = None
) -> list[Migration]:
    """What `migrate` would apply now. Changes nothing; raises as `migrate` does."""
    with _connect(dsn, schema) as connection:
        return list(pending(recorded(connection, schema), files or ours(), schema))


def sql_text(
    schema: str = DEFAULT_SCHEMA, *, after: int = 0, files: Sequence[Migration] | None = None
) -> str:
    """The migrations numbered above `after` as a script for psql with ON_ERROR_STOP.

    It records what it applies, so that `migrate` and `check` agree with it afterwards.
    """
    name = sql.Identifier(checked_schema_name(schema)).as_string(None)
    parts = [
        "-- jobctl's schema. Run it with: psql --no-psqlrc --set ON_ERROR_STOP=1 --file THIS\n",
        f"CREATE SCHEMA IF NOT EXISTS {name};\n",
        f"SET search_path = {name}, pg_temp;\n",
        f"{qualified('migration_table', schema).as_string(None)};\n",
    ]
    for migration in files or ours():
        if migration.number <= after:
            continue
        record = sql.SQL(
            "INSERT INTO {}.migration (number, name, sha256, compatible_from) VALUES ({})"
        ).format(
            sql.Identifier(schema),
            sql.SQL(", ").join(
                sql.Literal(value)
                for value in (
                    migration.number,
                    migration.name,
                    migration.sha256,
                    migration.compatible_from,
                )
            ),
        )
        text = migration.script.rstrip()
        body = f"{text}\n\n" if text.endswith(";") else f"{text}\n;\n\n"
        row = f"{record.as_string(None)};\n"
        parts.append(f"BEGIN;\n{row}{body}COMMIT;\n" if migration.in_transaction else body + row)
    return "\n".join(parts)


def _connect(dsn: str, schema: str) -> _Connection:
    where = conninfo(dsn, schema=checked_schema_name(schema), application_name="jobctl migrate")
    connection = psycopg.connect(where, autocommit=True, prepare_threshold=None)
    try:
        _require_server(connection)
        _set(connection, "statement_timeout", "0")
        _set(connection, "client_min_messages", "warning")
        with suppress(psycopg.Error):
            # Not every platform has it: our turn ends soon after we were killed in a statement.
            _set(connection, "client_connection_check_interval", "1s")
    except BaseException:
        connection.close()
        raise
    return connection


def _require_server(connection: _Connection) -> None:
    version = connection.info.server_version
    if version < _OLDEST_SERVER:
        raise SchemaError(
            f"this server is PostgreSQL {version // 10_000}; jobctl needs 14 or newer"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaError(
            f"this database is encoded in {encoding}, which cannot hold every job's text: create "
            "one with ENCODING 'UTF8'"
        )


def _set(connection: _Connection, setting: str, value: str) -> None:
    connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (setting, value))


def _take_turn(connection: _Connection, schema: str, patience: float) -> None:
    digest = sha256(b"jobctl migrate " + schema.encode()).digest()
    key = int.from_bytes(digest[:8], "big", signed=True)
    give_up = monotonic() + patience
    pause = 0.05
    while True:
        row = connection.execute(statement("migration_lock"), {"key": key}).fetchone()
        if row is not None and row[0]:
            return
        if monotonic() > give_up:
            raise SchemaError(
                f'somebody else has been migrating schema "{schema}" for {patience:.0f} s: see '
                "pg_stat_activity for application_name 'jobctl migrate', then run jobctl migrate "
                "again"
            )
        _log.info('another host is migrating schema "%s": waiting for it', schema)
        sleep(random.uniform(pause / 2, pause))  # noqa: S311 - jitter
        pause = min(pause * 1.5, 1.0)


def _lay_ground(connection: _Connection, schema: str) -> None:
    """The schema and the table of migrations, under the lock."""
    state = connection.execute(statement("migration_state"), {"schema": schema}).fetchone()
    try:
        if state is None or not state[0]:
            # Only if it is missing: IF NOT EXISTS asks for the right to create one all the same.
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        connection.execute(qualified("migration_table", schema))
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaError(
            f'this database user may not create schema "{schema}" or tables in it '
            f"({error.diag.message_primary}): migrate as a user who may, or have its owner run the "
            "output of jobctl migrate --sql"
        ) from error


def _apply(connection: _Connection, migration: Migration, schema: str) -> Applied | None:
    begun = monotonic()
    run = _in_transaction if migration.in_transaction else _by_statement
    try:
        ours_alone = _patiently(lambda: run(connection, migration, schema))
    except psycopg.Error as error:
        lost = connection.broken or connection.closed
        if lost:
            raise
        raise SchemaError(_failure(migration, schema, error)) from error
    if not ours_alone:
        return None
    return Applied(migration.number, migration.name, monotonic() - begun)


def _grant_again(connection: _Connection, schema: str) -> None:
    """A new table or function is nobody's but the owner's until now. Killed before this, the next
    call does it: it looks for roles that lack something too."""
    if roles := grants.incomplete(connection, schema):
        with connection.transaction():
            grants.apply(connection, roles, schema)


def _patiently(step: Callable[[], bool]) -> bool:
    """Runs `step` until it gets its locks; the last try's error is the caller's."""
    for _ in range(LOCK_TRIES - 1):
        try:
            return step()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            _log.warning("%s; trying again", error.diag.message_primary)
            sleep(random.uniform(0.5, 2.0))  # noqa: S311 - jitter; lets those behind us pass
    return step()


def _in_transaction(connection: _Connection, migration: Migration, schema: str) -> bool:
    """One transaction: the row first, which fences out anybody else, then the migration."""
    _set(connection, "lock_timeout", LOCK_TIMEOUT)
    with connection.transaction():
        if not _record(connection, migration, schema):
            return False
        _send(connection, migration.script)
    return True


def _by_statement(connection: _Connection, migration: Migration, schema: str) -> bool:
    """Statement by statement; those that build concurrently wait for old transactions to end."""
    _set(connection, "lock_timeout", "0")
    for text in migration.statements():
        _send(connection, text)
    return _record(connection, migration, schema)


def _send(connection: _Connection, text: str) -> None:
    # Without parameters the text travels as it is: several statements, and % means nothing.
    connection.execute(cast(Any, text))


def _record(connection: _Connection, migration: Migration, schema: str) -> bool:
    row = {
        "number": migration.number,
        "name": migration.name,
        "sha256": migration.sha256,
        "compatible_from": migration.compatible_from,
    }
    cursor = connection.execute(qualified("migration_record", schema, parameters=True), row)
    return cursor.fetchone() is not None


def _failure(migration: Migration, schema: str, error: psycopg.Error) -> str:
    said = error.diag.message_primary or str(error)
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return (
            f'migration {migration.label} of schema "{schema}" did not get its lock within '
            f"{LOCK_TIMEOUT}, {LOCK_TRIES} times: look for long transactions in pg_stat_activity, "
            "then run jobctl migrate again. Nothing was changed"
        )
    stayed = (
        "Nothing of it stayed"
        if migration.in_transaction
        else "Parts of it may stay; running it again begins at its start"
    )
    return f'migration {migration.label} of schema "{schema}" failed: {said}. {stayed}'
