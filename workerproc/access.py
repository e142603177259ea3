"""The way to the database, as a slot is told it: the DSN, the schema, and by what name to come.

It travels through the template's socket and stays in memory: not in an argument, an environment, a
title or a log. Whoever is given it opens nothing by having it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Access:
    """`dsn` may be "", which means libpq's own variables; `name` begins what the server shows."""

    dsn: str = field(repr=False)  # it may hold a password
    schema: str
    name: str
