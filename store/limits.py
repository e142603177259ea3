"""Limits as operators see them: what a key allows, who holds its places, who waits.

A rule is for one key, or for every key that begins alike (`tenant:*`), each with places of its own.
It counts from the moment it is set, on all hosts; who holds a place that there is no more keeps it
until its attempt has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobctl.store.operating import Order
from jobctl.store.reading import Connection
from jobctl.store.statements import sql

#: No key is longer.
LONGEST_KEY = 200
MOST_PLACES = 1_000_000
#: No start is planned further apart, and none closer.
LONGEST_SPACING = 31_536_000.0
#: No count goes beyond this.
LARGEST_COUNT = 100_000


@dataclass(frozen=True)
class Limit:
    """One key, or a rule that no job has come with yet. `rate`: starts a second. `age`: how long
    the one who is next has waited, in seconds."""

    limit_key: str
    rule: str | None
    max_running: int | None
    rate: float | None
    burst: int
    brake: bool
    braked_to: int | None
    held_until: datetime | None
    held: int
    waiting: int
    age: float | None


@dataclass(frozen=True)
class Holder:
    """A job that holds a place; not claimed yet where `claimed_at` is None."""

    job_id: int
    type: str | None
    admitted_at: datetime
    claimed_at: datetime | None
    host: str | None
    slot: int | None


def limits(connection: Connection, key: str | None = None) -> list[Limit]:
    """All of them, or those of one key or rule."""
    rows = connection.execute(sql("read_limits"), {"key": key, "most": LARGEST_COUNT})
    return [Limit(**row) for row in rows]


def holders(connection: Connection, key: str, most: int = 20) -> list[Holder]:
    """Who holds places of this key, the oldest first."""
    rows = connection.execute(sql("read_limit_holders"), {"key": key, "most": most})
    return [Holder(**row) for row in rows]


def set_limit(
    connection: Connection,
    key: str,
    order: Order,
    *,
    max_running: int | None = None,
    per_seconds: float | None = None,
    burst: int = 1,
    brake: bool = False,
) -> None:
    """What the key or pattern allows from now on; None is not limited. `per_seconds`: between two
    starts, of which `burst` may come at once after a pause."""
    _run(
        connection, "set_limit", key, order, max_running=max_running, per_seconds=per_seconds,
        burst=burst, brake=brake,
    )  # fmt: skip


def remove(connection: Connection, key: str, order: Order) -> bool:
    """This rule counts no more. False if there was none."""
    return bool(_run(connection, "remove_limit", key, order)["done"])


def release(connection: Connection, key: str, order: Order) -> bool:
    """Takes back the brake, and the wait that somebody was told. False if no job came with it."""
    return bool(_run(connection, "release_limit", key, order)["done"])


def _run(
    connection: Connection, statement: str, key: str, order: Order, **parameters: Any
) -> dict[str, Any]:
    given = {"key": key, "actor": order.actor, "reason": order.reason, **parameters}
    row = connection.execute(sql(statement), given).fetchone()
    assert row is not None  # noqa: S101 - each of them is a SELECT of one row
    return row
