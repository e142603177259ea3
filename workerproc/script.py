"""Statements with something to decide between them, written once for every kind of connection.

A script is a generator that yields what to ask and is sent the rows; whoever runs it has the
connection, and waits as its kind waits. Nothing here commits.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg

from jobctl.store import callers
from jobctl.store.statements import sql

R = TypeVar("R")
Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """One statement of store/sql; `schema` fills its {schema}, if it has one."""

    statement: str
    parameters: Mapping[str, Any]
    schema: str | None = None

    @property
    def text(self) -> str:
        """What is sent."""
        if self.schema is None:
            return sql(self.statement)
        return callers.in_this_schema(self.statement, self.schema)


Script = Generator[Ask, list[callers.Row], R]


def run(conn: object, script: Script[R]) -> R:
    """What the script returns, on a connection that need not be awaited."""
    try:
        ask = next(script)
        while True:
            ask = script.send(callers.run(conn, ask.text, ask.parameters))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # a generator's value is not typed


async def arun(conn: object, script: Script[R]) -> R:
    """`run`, on an async connection."""
    try:
        ask = next(script)
        while True:
            ask = script.send(await callers.run_async(conn, ask.text, ask.parameters))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # a generator's value is not typed
