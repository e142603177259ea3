"""What a statement costs and how it is planned, on a connection like the dispatcher's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import psycopg

from jobctl.store.statements import sql
from tests.claiming import Connection

_PARAMETER = re.compile(r"%\((\w+)\)s")
_PARTITION = re.compile(r"^history_\d{8}")


class Scan(NamedTuple):
    """How a plan reads a table. A partition of history counts as history, so does its index."""

    table: str
    by: str | None  # the index; None: all of it
    bounded: bool = True  # by a condition: the index is not walked from end to end


def plan(connection: Connection, statement: str, **parameters: Any) -> set[Scan]:
    """How the generic plan of this statement, prepared, reads tables. Nothing is executed."""
    names = list(dict.fromkeys(_PARAMETER.findall(sql(statement))))
    numbered = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", sql(statement))
    cursor = psycopg.ClientCursor(connection)
    cursor.execute("SET plan_cache_mode = force_generic_plan")
    cursor.execute(f"PREPARE shown AS {numbered}".encode())
    try:
        call = "shown" if not names else f"shown({', '.join(['%s'] * len(names))})"
        values = [parameters[name] for name in names]
        cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE {call}".encode(), values)
        row = cursor.fetchone()
    finally:
        cursor.execute("DEALLOCATE shown")
    assert row is not None
    return set(_scans(row[0][0]["Plan"]))


def _scans(node: Mapping[str, Any]) -> Iterator[Scan]:
    table = node.get("Relation Name")
    if table and node["Node Type"] != "ModifyTable":
        index = node.get("Index Name")
        if _PARTITION.match(table):
            table, index = "history", index and _PARTITION.sub("history", index)
        if node["Node Type"] == "Tid Scan":
            index = "ctid"
        yield Scan(table, index, "Index Cond" in node or "TID Cond" in node)
    for child in node.get("Plans", ()):
        yield from _scans(child)


_TOUCHED = """
    SELECT sum(coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0)
               + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0))::bigint
    FROM pg_statio_all_tables
    WHERE schemaname = current_schema()
"""


class Pages:
    """Counts the pages of our tables and their indexes that these connections' statements touch.

    Only while nobody else is at work in the database.
    """

    def __init__(self, *connections: Connection) -> None:
        self._connections = connections

    def touched(self) -> int:
        """So far."""
        for connection in self._connections:
            connection.execute("SELECT pg_stat_force_next_flush()")
            row = connection.execute(_TOUCHED).fetchone()  # what came before is flushed by now
        assert row is not None
        return int(row[0])
