"""Statements by name: `sql("claim")` is the text of `store/sql/claim.sql` without its header.

One statement a file; the file's name is the statement's label in metrics and logs. The header
(transition, why, guard, index, parameters) is for people and does not travel to the server.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import LiteralString


@cache
def sql(name: str) -> LiteralString:
    """The statement called `name`, read once. LookupError when there is none of that name.

    It is literal in the sense that psycopg's types mean: it comes from our own package, never from
    a user.
    """
    file = files(__package__) / "sql" / f"{name}.sql"
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        known = ", ".join(names())
        raise LookupError(f"no statement {name!r} in store/sql; there are: {known}") from None
    return without_header(text)


def names() -> list[str]:
    """All labels, sorted."""
    folder = files(__package__) / "sql"
    found = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".sql") for name in found if name.endswith(".sql"))


def without_header(text: str) -> str:
    """The text from its first line that is neither blank nor a comment."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith("--"):
            return "\n".join(lines[at:]).strip()
    return ""
