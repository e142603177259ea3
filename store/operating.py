"""What an operator does to jobs, hosts and crons, each with a line in the audit log.

Two people may do the same at once: every statement moves only what still stands where it was seen,
and says which. What was asked for, by whom and why is written in the transaction that does it.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from jobctl.store.cron_spec import CronSpec
from jobctl.store.errors import InvalidJob
from jobctl.store.json_values import arguments_text
from jobctl.store.reading import Connection, Row
from jobctl.store.statements import sql

#: The most jobs that one transaction moves.
BATCH = 1_000

#: What is done to many jobs: `replay`, `discard`, `hasten`.
Verb = Callable[[Connection, Sequence[int], "Order"], list[int]]


@dataclass(frozen=True)
class Order:
    """Who wants something, why, and what they asked for."""

    actor: str
    reason: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def by_me(cls, reason: str | None, asked: Mapping[str, Any]) -> Order:
        """By the user of this process; under sudo, by whoever used it."""
        user = os.environ.get("SUDO_USER")
        if not user:
            try:
                user = getpass.getuser()
            except (KeyError, OSError):  # a number without a name, as in some containers
                user = f"uid {os.getuid()}"
        return cls(f"{user}@{socket.gethostname()}", reason, asked)


@dataclass(frozen=True)
class Edit:
    """Other arguments for jobs that are replayed. `args` takes the place of all of them; `set` and
    `unset` change some. Raises InvalidJob for what cannot be stored."""

    args: Mapping[str, Any] | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    unset: Sequence[str] = ()

    def parameters(self) -> dict[str, Any]:
        """For the statement."""
        return {
            "args": None if self.args is None else arguments_text(self.args),
            "set": arguments_text(self.set),
            "unset": list(self.unset),
        }


AS_THEY_ARE = Edit()


def replay(
    connection: Connection, ids: Sequence[int], order: Order, edit: Edit = AS_THEY_ARE
) -> list[int]:
    """Queues dead jobs again with new budgets, perhaps with other arguments; returns those that
    were dead until now. Raises InvalidJob, and changes none, if arguments would be too large."""
    return _asked(connection, "replay_dead", ids, order, **edit.parameters())


def discard(connection: Connection, ids: Sequence[int], order: Order) -> list[int]:
    """Gives dead jobs up, for the reason of the order; returns those that were dead until now."""
    return _asked(connection, "discard_dead", ids, order)


def hasten(connection: Connection, ids: Sequence[int], order: Order) -> list[int]:
    """Queues scheduled and retrying jobs now; returns those that were waiting until now."""
    return _move(connection, "hasten", ids, order)


def cancel(
    connection: Connection, ids: Sequence[int], order: Order, *, force_after: float | None = None
) -> dict[int, str]:
    """Cancels what waits and asks what runs to end; after `force_after` seconds its process is
    killed. Returns what became of each job that exists: see `cancel_many` in the schema."""
    with connection.transaction():
        rows = connection.execute(
            sql("cancel_jobs"),
            {
                "ids": list(ids),
                "actor": order.actor,
                "reason": order.reason,
                "filter": json.dumps(order.asked),
                "force_after": force_after,
            },
        ).fetchall()
    return {row["job_id"]: row["answer"] for row in rows}


def drain(
    connection: Connection, host: str | None, order: Order, *, undo: bool = False
) -> list[Row]:
    """Asks the supervisors of this host (None: of all) to claim nothing more, or to claim again.

    Returns the `id` (of the session) and `host` of each that was asked; they follow within moments.
    """
    with connection.transaction():
        asked = connection.execute(
            sql("request_drain"),
            {"host": host, "drain": not undo, "actor": order.actor, "reason": order.reason},
        ).fetchall()
        if asked:
            connection.execute(sql("announce"))
    return asked


def drained(connection: Connection, sessions: Sequence[int]) -> list[Row]:
    """How far these are: `id`, `host`, `draining`, `alive`, and how many `claims` they hold."""
    return connection.execute(sql("read_drained"), {"sessions": list(sessions)}).fetchall()


def held(connection: Connection, sessions: Sequence[int], most: int) -> list[Row]:
    """What these still hold: `id`, `type`, `host`, `slot` (None: not known) and for how many
    `seconds`, the longest first."""
    return connection.execute(
        sql("read_held"), {"sessions": list(sessions), "most": most}
    ).fetchall()


def switch_cron(connection: Connection, name: str, order: Order, *, enable: bool) -> bool:
    """Enables or disables a cron. False: there is none of this name that is not so already."""
    return bool(_change_cron(connection, "switch_cron", order, name=name, enable=enable))


def run_cron(connection: Connection, name: str, order: Order) -> int | None:
    """Enqueues one more job of a cron, now, and returns its id; None if there is no such cron."""
    rows = _change_cron(connection, "run_cron", order, name=name)
    return rows[0]["job_id"] if rows else None


def add_cron(connection: Connection, spec: CronSpec, order: Order) -> bool:
    """Adds a cron that only the database knows. False: there is one of this name."""
    definition = spec.to_dict()
    name = definition.pop("name")
    rows = _change_cron(connection, "add_cron", order, name=name, definition=json.dumps(definition))
    return bool(rows)


def remove_cron(connection: Connection, name: str, order: Order) -> bool:
    """Removes a cron that was added. False: there is none that only the database knows."""
    return bool(_change_cron(connection, "remove_cron", order, name=name))


def _change_cron(
    connection: Connection, statement: str, order: Order, **parameters: Any
) -> list[Row]:
    with connection.transaction():
        rows = connection.execute(
            sql(statement), {**parameters, "actor": order.actor, "reason": order.reason}
        ).fetchall()
        if rows:
            connection.execute(sql("announce"))
    return rows


def _move(connection: Connection, statement: str, ids: Sequence[int], order: Order) -> list[int]:
    with connection.transaction():
        moved = _asked(connection, statement, ids, order)
        if moved:
            connection.execute(sql("ring"))
    return moved


def _asked(
    connection: Connection, statement: str, ids: Sequence[int], order: Order, **more: Any
) -> list[int]:
    asked = {
        "ids": list(ids),
        "actor": order.actor,
        "reason": order.reason,
        "filter": json.dumps(order.asked),
    }
    try:
        rows = connection.execute(sql(statement), {**asked, **more}).fetchall()
    except psycopg.errors.InvalidParameterValue as error:
        raise InvalidJob(error.diag.message_primary or str(error)) from error
    return [row["job_id"] for row in rows]
