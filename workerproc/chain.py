"""Jobs one after the other: `jobctl.chain`.

Nothing but `after=`, written for you. Each step keeps its key, its type's retry policy and its
other options; the chain itself is nothing that anybody has to keep.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import overload

from jobctl.store.callers import AsyncConnection, Connection
from jobctl.store.enqueue import enqueue_many
from jobctl.store.errors import InvalidJob
from jobctl.store.new_job import NewJob, OnDead
from jobctl.workerproc.context import Context

#: One job, or several that may run at the same time.
Step = NewJob | list[NewJob] | tuple[NewJob, ...]


@overload
def chain(conn: Connection, /, *steps: Step, on_dead: OnDead | None = None) -> list[int]: ...
@overload
def chain(
    conn: AsyncConnection, /, *steps: Step, on_dead: OnDead | None = None
) -> Awaitable[list[int]]: ...
@overload
def chain(ctx: Context, /, *steps: Step, on_dead: OnDead | None = None) -> list[NewJob]: ...
def chain(
    conn: Connection | AsyncConnection | Context, /, *steps: Step, on_dead: OnDead | None = None
) -> list[int] | Awaitable[list[int]] | list[NewJob]:
    """Enqueues jobs of which each comes after the one before, all or none, and returns their ids.

    A step is an item (`send_invoice.item(...)`), or a list of items that may run at the same time:
    each of them comes after all of the step before. `on_dead` is for every step but the first: what
    becomes of it when one before it is dead, unless its item says it itself. With an async
    connection the ids have to be awaited; with a handler's `ctx` the jobs are enqueued when it
    succeeds, and the items are returned. Raises InvalidJob; nothing was sent then.
    """
    items = linked(steps, on_dead)
    if isinstance(conn, Context):
        return conn.enqueue_all(items)
    return enqueue_many(conn, items)


def linked(steps: Sequence[Step], on_dead: OnDead | None = None) -> list[NewJob]:
    """The items, each with what it comes after; as `enqueue_many` takes them."""
    items: list[NewJob] = []
    before: list[NewJob] = []
    for position, step in enumerate(steps, start=1):
        group = list(step) if isinstance(step, list | tuple) else [step]
        for one in group:
            if not isinstance(one, NewJob):
                raise InvalidJob(
                    f"step {position} of the chain must be an item of a job type "
                    f"(send_invoice.item(...)) or a list of items, not {one!r:.80}"
                )
        if not group:
            raise InvalidJob(f"step {position} of the chain is an empty list")
        if before:
            group = [one.coming_after(before, on_dead) for one in group]
        items += group
        before = group
    return items
