"""The name of our schema: any name that PostgreSQL takes as it is, `jobctl` by default.

Names are quoted wherever they meet SQL (psycopg.sql.Identifier), so quotes, spaces, upper case and
unicode are all fine. What PostgreSQL would silently cut or keeps for itself is refused here.
"""

from __future__ import annotations

import os

DEFAULT_SCHEMA = "jobctl"
_LONGEST_BYTES = 63


def schema_from_environment() -> str:
    """The schema that applications enqueue into: JOBCTL_SCHEMA, or the default."""
    return checked_schema_name(os.environ.get("JOBCTL_SCHEMA") or DEFAULT_SCHEMA)


def checked_schema_name(name: str) -> str:
    """`name`, if a schema can have it. Raises ValueError."""
    if not isinstance(name, str) or not name:
        raise ValueError("the schema's name must be text of at least one character")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"the schema's name {name!r} is not valid unicode") from None
    if "\0" in name:
        raise ValueError("the schema's name must not contain the character NUL")
    if size > _LONGEST_BYTES:
        # PostgreSQL would cut it, and two names could come to mean one schema.
        raise ValueError(f"the schema's name {name!r} has {size} bytes, the most is 63: shorten it")
    if name.startswith("pg_") or name == "information_schema":
        raise ValueError(f"the schema's name {name!r} is reserved by PostgreSQL: choose another")
    return name
