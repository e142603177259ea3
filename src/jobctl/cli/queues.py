"""`jobctl queues`: what waits in which, who serves it, and an operator's hand on the tap.

Two verbs and no toggle: what two people pause at once is paused. A name that nobody has heard of is
taken for a slip of the finger until it is said to be new.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Any

import click

from jobctl.cli import completion, database
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.kinds import TEXT
from jobctl.cli.moments import coarse, since
from jobctl.cli.nouns import Noun
from jobctl.cli.options import database_options
from jobctl.cli.output import Output, Row, output_option, say
from jobctl.cli.table import safe
from jobctl.store import queues as store
from jobctl.store import reading
from jobctl.store.operating import Order
from jobctl.store.reading import Connection, QueueStatus
from jobctl.store.states import State
from jobctl.supervisor.settings_sources import Loaded

#: The open states, as the columns of a table.
STATES = (
    State.QUEUED, State.RUNNING, State.SCHEDULED, State.RETRYING, State.BLOCKED, State.DEAD,
)  # fmt: skip
#: No job can be enqueued in a queue with a longer name.
LONGEST_NAME = 100

reason_option = click.option(
    "--reason", type=TEXT, metavar="TEXT", help="Why; shown with the queue, kept in the audit log."
)


@click.group(cls=Noun)
def queues() -> None:
    """Queues: what waits in them, and whether anything is taken from them."""


@queues.command("list")
@database_options
@output_option
def list_(loaded: Loaded, output: Output) -> None:
    """List queues: how long the oldest due job has waited, and who serves them."""
    with database.connect(loaded) as connection:
        rows = facts(connection)
        now = database.now(connection)

    def cells(row: Row) -> list[object]:
        pause = ""
        if row["paused_at"] is not None:
            words = [f"{since(now, row['paused_at'])} ago by {row['paused_by'] or 'somebody'}"]
            pause = ": ".join([*words, *([row["paused_reason"]] if row["paused_reason"] else [])])
        return [
            row["queue"], row["state"], age(row), *counts(row), len(row["hosts"]), pause,
        ]  # fmt: skip

    titles = ("QUEUE", "STATE", "OLDEST DUE", *(state.upper() for state in STATES), "HOSTS",
              "PAUSED")  # fmt: skip
    output.rows(rows, name="queue", titles=titles, cells=cells)


@queues.command()
@click.argument(
    "names",
    metavar="QUEUE...",
    nargs=-1,
    required=True,
    type=TEXT,
    shell_complete=completion.names("queue"),
)
@click.option("--new", is_flag=True, help="Also a queue that has never had a job.")
@reason_option
@database_options
def pause(loaded: Loaded, names: tuple[str, ...], new: bool, reason: str | None) -> None:
    """Take nothing more from these queues, on all hosts, until they are resumed.

    What runs goes on to its end. Jobs can be enqueued as ever, and wait.
    """
    if any(not 0 < len(name) <= LONGEST_NAME for name in names):
        raise click.UsageError(f"A queue's name has 1 to {LONGEST_NAME} characters.")
    with database.connect(loaded) as connection:
        if not new:
            _require_known(
                names, store.known(connection), "To pause it before its first job: --new"
            )
        done = store.pause(connection, _once(names), Order.by_me(reason, {}))
        running = {row["queue"]: row["running"] for row in facts(connection)}
    for name in _once(names):
        if name not in done:
            say(f"{safe(name)} was paused already.")
        elif many := running.get(name, 0):
            say(f"{safe(name)} is paused; {many} of its jobs still run{'s' if many == 1 else ''}.")
        else:
            say(f"{safe(name)} is paused.")


@queues.command()
@click.argument(
    "names",
    metavar="QUEUE...",
    nargs=-1,
    required=True,
    type=TEXT,
    shell_complete=completion.names("queue"),
)
@reason_option
@database_options
def resume(loaded: Loaded, names: tuple[str, ...], reason: str | None) -> None:
    """Take from these queues again."""
    with database.connect(loaded) as connection:
        _require_known(names, store.known(connection), "Paused ones: jobctl queues list")
        done = store.resume(connection, _once(names), Order.by_me(reason, {}))
    for name in _once(names):
        say(f"{safe(name)} {'is open again' if name in done else 'was not paused'}.")


def facts(connection: Connection) -> list[dict[str, Any]]:
    """Each queue with its counts, its age, its pause, and the live hosts that serve it."""
    pauses = store.known(connection)
    found = {queue.queue: queue for queue in reading.queues(connection)}
    live = [row for row in reading.hosts(connection) if row["state"] not in ("dead", "silent")]
    return [
        _facts_of(
            found.get(name) or QueueStatus(name, {}, None),
            pauses.get(name),
            sorted({row["host"] for row in live if _serves(row, name)}),
        )
        for name in sorted(pauses.keys() | found.keys())
    ]


def counts(row: Row) -> list[object]:
    """The cells of the open states; `3+` where counting has stopped."""
    return [f"{row[state]}+" if state in row["at_least"] else row[state] for state in STATES]


def age(row: Row) -> str:
    """How long its oldest due job has waited."""
    return "" if row["age_seconds"] is None else coarse(row["age_seconds"])


def _facts_of(queue: QueueStatus, pause: store.Pause | None, hosts: list[str]) -> dict[str, Any]:
    told = queue.counts
    return {
        "queue": queue.queue,
        "state": "paused" if pause else "open" if hosts else "unserved",
        "age_seconds": queue.age_seconds,
        **{state.value: told[state].jobs if state in told else 0 for state in STATES},
        "at_least": [state for state, count in told.items() if count.capped],
        "hosts": hosts,
        "paused_at": pause.since if pause else None,
        "paused_by": pause.by if pause else None,
        "paused_reason": pause.reason if pause else None,
    }


def _serves(host: Row, queue: str) -> bool:
    return host["queues"] is None or queue in host["queues"]


def _once(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _require_known(names: Sequence[str], known: Collection[str], advice: str) -> None:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]}?" if close else ""
            there = ", ".join(sorted(known)[:20]) or "none yet"
            hint = hint or f" There are: {there}."
            raise Failure(
                ExitCode.NO_SUCH_THING,
                f"No job has ever been in a queue {name}; nothing was changed.{hint} {advice}",
            )
