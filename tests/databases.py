"""The databases of the tests: a migrated one that is cleaned between tests, and empty ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.migrate import migrate
from tests.waiting import until

SCHEMA = "jobctl"

TABLES = """
    SELECT c.relname
    FROM pg_class c
    WHERE c.relnamespace = %s::regnamespace
      AND c.relkind IN ('r', 'p')
      AND NOT c.relispartition
      AND c.relname <> 'migration'
    ORDER BY c.relname
"""

SEQUENCES = """
    SELECT c.relname
    FROM pg_class c
    WHERE c.relnamespace = %s::regnamespace
      AND c.relkind = 'S'
    ORDER BY c.relname
"""

# What a test left behind must not hold locks when the next one begins.
SEND_OTHERS_AWAY = """
    SELECT pg_terminate_backend(pid)
    FROM pg_stat_activity
    WHERE datname = current_database()
      AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'
"""


class MigratedDatabase:
    """One database, migrated once, that clean() puts back to how the migrations left it."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.dsn = _create(server, "tests")
        migrate(self.dsn, schema=SCHEMA)
        self._connection = psycopg.connect(self.dsn, autocommit=True)
        self._tables = self._names(TABLES)
        self._sequences = [(name, *self._sequence(name)) for name in self._names(SEQUENCES)]
        self._seeds = {table: self._rows(table) for table in self._filled()}

    def clean(self) -> None:
        """Empty what is not as the migrations left it, and set every sequence back."""
        until(self._is_alone, what="the other sessions' end")
        filled = self._filled()
        if filled:
            names = sql.SQL(", ").join(map(_qualified, filled))
            self._connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(names))
        for table, rows in self._seeds.items():
            copy = sql.SQL("COPY {} FROM STDIN").format(_qualified(table))
            with self._connection.cursor().copy(copy) as into:
                into.write(rows)
        for name, value, called in self._sequences:
            self._connection.execute(
                "SELECT setval(%s::regclass, %s, %s)",
                (_qualified(name).as_string(self._connection), value, called),
            )

    def close(self) -> None:
        self._connection.close()

    def _is_alone(self) -> bool:
        return self._connection.execute(SEND_OTHERS_AWAY).rowcount == 0

    def _names(self, query: str) -> list[str]:
        return [name for (name,) in self._connection.execute(query.encode(), (SCHEMA,))]

    def _sequence(self, name: str) -> tuple[int, bool]:
        query = sql.SQL("SELECT last_value, is_called FROM {}").format(_qualified(name))
        row = self._connection.execute(query).fetchone()
        assert row is not None
        return row[0], row[1]

    def _filled(self) -> list[str]:
        """The tables that hold a row: to truncate one that is empty costs as much."""
        if not self._tables:
            return []
        asks = [
            sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})").format(table, _qualified(table))
            for table in self._tables
        ]
        query = sql.SQL(" UNION ALL ").join(asks)
        return [name for (name,) in self._connection.execute(query)]

    def _rows(self, table: str) -> bytes:
        copy = sql.SQL("COPY {} TO STDOUT").format(_qualified(table))
        with self._connection.cursor().copy(copy) as out:
            return b"".join(bytes(block) for block in out)


@contextmanager
def empty_database(server: EmbeddedPostgres) -> Iterator[str]:
    """The DSN of a new database without our schema; dropped afterwards, whoever is connected."""
    name = f"fresh_{uuid.uuid4().hex[:12]}"
    yield _create(server, name)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _create(server: EmbeddedPostgres, name: str) -> str:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return server.dsn(name)


def _qualified(name: str) -> sql.Identifier:
    return sql.Identifier(SCHEMA, name)
