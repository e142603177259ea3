"""Queues as operators see them: known by name, and paused or not.

A pause is a row: it outlives restarts and deploys, and a queue that has no job yet can have one.
What a paused queue runs goes on to its end; nothing more of it is claimed, by any host, until
somebody resumes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from jobctl.store.operating import Order
from jobctl.store.reading import Connection
from jobctl.store.statements import sql


@dataclass(frozen=True)
class Pause:
    """Who stopped a queue, when, and why."""

    since: datetime
    by: str | None
    reason: str | None


def known(connection: Connection) -> dict[str, Pause | None]:
    """Every queue that has ever had a job or is paused, by name, with its pause."""
    rows = connection.execute(sql("read_pauses"), {}).fetchall()
    return {
        row["name"]: None
        if row["paused_at"] is None
        else Pause(row["paused_at"], row["paused_by"], row["paused_reason"])
        for row in rows
    }


def pause(connection: Connection, names: Sequence[str], order: Order) -> list[str]:
    """Stops these queues; returns those that were not paused until now. Hosts hear it at once."""
    return _change(connection, "pause_queues", names, order)


def resume(connection: Connection, names: Sequence[str], order: Order) -> list[str]:
    """Lets these queues go on; returns those that were paused until now."""
    return _change(connection, "resume_queues", names, order)


def _change(
    connection: Connection, statement: str, names: Sequence[str], order: Order
) -> list[str]:
    parameters = {"names": list(names), "actor": order.actor, "reason": order.reason}
    with connection.transaction():
        changed = [row["name"] for row in connection.execute(sql(statement), parameters)]
        if changed:
            connection.execute(sql("announce"))
    return changed
