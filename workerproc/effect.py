"""`ctx.effect()`: whether something has been done to the world, asked before and said after.

Nobody can act outside and write it down in one step, so one of two bad outcomes has to be chosen:

- `mark_first` marks, acts, and says done. A death in between leaves a mark that nobody has spoken
  for: the next attempt finds it *ambiguous* and does not act. Never twice, perhaps never.
- `act_first` acts and says done. A death in between leaves nothing: the next attempt acts again.
  Never forgotten, perhaps twice.

With `conn=` what is done is that connection's own transaction, and neither can happen. Every write
is fenced by the token of the claim: an attempt that is not the job's any more cannot act on the
word of this table.

What has been done is the one thing that failing cannot take back: while PostgreSQL is away, whoever
says so waits for it, until the deadline.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import psycopg

from jobctl.store.callers import kind_of
from jobctl.store.errors import UnstorableValue
from jobctl.store.json_values import value_text
from jobctl.workerproc import script
from jobctl.workerproc.errors import LostClaim, Snooze
from jobctl.workerproc.script import Ask, Script

if TYPE_CHECKING:
    from jobctl.workerproc.context import Context

#: How long a job sleeps whose effect is being done by another job at this moment.
BUSY_SECONDS: Final = 5.0
#: How long it waits at first, and at most, before it asks a PostgreSQL again that was away.
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
KEY_LENGTH: Final = 500
KEY_BYTES: Final = 1500

Mode = Literal["mark_first", "act_first"]
State = Literal["new", "done", "ambiguous"]
Reconcile = Callable[["Effect"], Awaitable[None] | None]


class Effect:
    """One effect, entered by `with` or `async with`.

    `key`: the same on every attempt, so it is an idempotency key for whoever acts. `state`: `new`,
    `done`, or `ambiguous` (marked by an attempt that never said it was done). `value`: what was
    given to `done`, by whichever attempt. A block that ends well while there is something `todo`
    has done it.
    """

    def __init__(
        self,
        context: Context,
        key: str,
        mode: Mode,
        reconcile: Reconcile | None,
        conn: Any,
    ) -> None:
        self.key: Final = _checked_key(key)
        self.state: State = "new"
        self.value: Any = None
        if mode not in ("mark_first", "act_first"):
            raise ValueError(
                "ctx.effect: mode must be 'mark_first' (never twice, perhaps never) or "
                f"'act_first' (never forgotten, perhaps twice), not {mode!r:.60}"
            )
        self._context = context
        self._act_first = mode == "act_first"
        self._reconcile = reconcile
        self._conn = conn
        self._is_async = False
        self._entered = self._reconciling = self._not_done = False
        self._counted = False
        self._to_write: Ask | None = None

    @property
    def todo(self) -> bool:
        """Whether this attempt is to act."""
        if self._not_done or self.state == "done":
            return False
        return self.state == "new" or self._act_first

    def done(self, value: Any = None) -> Awaitable[None]:
        """It has been done, and this is what came of it: small JSON for later attempts.

        Written when this returns; on an async connection, when it was awaited, or the block ends.
        That waits while PostgreSQL is away; not with `conn=`, whose transaction is gone then.
        Raises LostClaim when another attempt counts now, and UnstorableValue for a value that JSON
        cannot hold: then it is recorded as done, without the value.
        """
        self._must_be_entered()
        if self.state == "done":
            return _Written(None)
        wrong: UnstorableValue | None = None
        text = None
        try:
            text = None if value is None else value_text(value)
            self.value = value
        except UnstorableValue as error:
            wrong = error
        self.state = "done"
        self._to_write = Ask("finish_effect", {**self._names(), "value": text}, self._schema)
        if not self._is_async:
            self._write()
        if wrong is not None:
            raise wrong
        return _Written(self if self._is_async else None)

    def not_done(self) -> Awaitable[None]:
        """It has surely not been done, and the next attempt may. Written as `done` is.

        In `reconcile=`: this attempt may.
        """
        self._must_be_entered()
        if self._reconciling:
            self.state = "new"
            return _Written(None)
        if self.state == "done":
            raise RuntimeError(f"the effect {self.key!r} is done already")
        self._not_done = True
        if self._act_first and self._conn is None:
            return _Written(None)  # nothing was written that would have to go
        self._to_write = Ask("drop_effect", self._names(), self._schema)
        if not self._is_async:
            self._write()
        return _Written(self if self._is_async else None)

    # With a plain connection ---------------------------------------------------------------------

    def __enter__(self) -> Effect:
        """Asks, and marks. Raises LostClaim, and Snooze while another job is about to do it."""
        if self._conn is not None and kind_of(self._conn).is_async:
            raise TypeError("ctx.effect: conn is async, so: async with ctx.effect(...)")
        self._ask(self._begin())
        self._entered = True
        if self.state == "ambiguous" and self._reconcile is not None:
            self._reconciling = True
            if inspect.isawaitable(self._reconcile(self)):
                raise TypeError("ctx.effect: reconcile is async: async with ctx.effect(...)")
            self._reconciled()
        return self

    def __exit__(self, *raised: object) -> None:
        """Says done, unless something was raised: then nobody knows, and the mark stays."""
        try:
            if raised[0] is None and self.todo:
                self.done()
            self._count(failed=raised[0] is not None)
        finally:
            self._entered = False

    # With an async one ---------------------------------------------------------------------------

    async def __aenter__(self) -> Effect:
        """`__enter__`, for coroutines."""
        self._is_async = True
        if self._conn is not None and not kind_of(self._conn).is_async:
            raise TypeError("ctx.effect: conn is not async, so: with ctx.effect(...)")
        await self._aask(self._begin())
        self._entered = True
        if self.state == "ambiguous" and self._reconcile is not None:
            self._reconciling = True
            answer = self._reconcile(self)
            if answer is not None:
                await answer
            await self._awrite()
            self._reconciled()
        return self

    async def __aexit__(self, *raised: object) -> None:
        """`__exit__`, for coroutines."""
        try:
            if raised[0] is None and self.todo:
                self.done()
            await self._awrite()
            self._count(failed=raised[0] is not None)
        finally:
            self._entered = False

    # What is asked and said ----------------------------------------------------------------------

    def _begin(self) -> Script[None]:
        # In the caller's transaction the mark is only seen when all is: it keeps others out.
        own = self._conn is None
        mark = not (own and self._act_first)
        asked = {**self._names(), "mark": mark, "lock": own}
        ((state, value, by),) = yield Ask("begin_effect", asked, self._schema)
        if state == "lost":
            self._lost()
        if state == "busy":
            self._say("busy")
            self._context.log.info("job #%s is about to do %r at this moment", by, self.key)
            raise Snooze(BUSY_SECONDS)
        self.state = state
        if state == "done":
            self._say("repeated")
            self.value = None if value is None else json.loads(value)

    def _finish(self) -> Script[None]:
        ask, self._to_write = self._to_write, None
        if ask is not None:
            ((held,),) = yield ask
            if not held:
                self._lost()

    def _write(self) -> None:
        what, pauses = self._to_write, self._pauses()
        while True:
            try:
                return self._ask(self._finish())
            except psycopg.OperationalError as error:
                # Until PostgreSQL is back, or no time is left.
                time.sleep(self._pause(pauses, error))
                self._to_write = what  # twice is as good as once: the claim's token guards it

    async def _awrite(self) -> None:
        what, pauses = self._to_write, self._pauses()
        while self._to_write is not None:
            try:
                await self._aask(self._finish())
            except psycopg.OperationalError as error:
                await asyncio.sleep(self._pause(pauses, error))
                self._to_write = what

    def _pauses(self) -> Iterator[float]:
        """How long to wait before each new try; they end with the attempt's time."""
        context = self._context
        if self._conn is not None or math.isinf(context.deadline):
            return  # its transaction is gone; or nobody would end the waiting
        pause = FIRST_PAUSE
        context.log.warning(
            "PostgreSQL is away; what became of %r is said when it is back", self.key
        )
        while (remains := context.deadline - time.monotonic()) > 0:
            yield min(pause, remains)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _pause(self, pauses: Iterator[float], error: psycopg.OperationalError) -> float:
        """The next one; raises the error if there is none."""
        if isinstance(error, psycopg.errors.QueryCanceled):  # by the deadline, or a person
            raise error
        pause = next(pauses, None)
        if pause is None:
            raise error
        return pause

    def _ask(self, asked: Script[None]) -> None:
        if self._conn is not None:
            script.run(self._conn, asked)
            return
        context = self._context
        connection = context._connections.borrow(context.type, context.deadline)
        try:
            script.run(connection, asked)
        finally:
            context._connections.give_back(connection)

    async def _aask(self, asked: Script[None]) -> None:
        if self._conn is not None:
            await script.arun(self._conn, asked)
            return
        context = self._context
        connection = await context._connections.aborrow(context.type, context.deadline)
        try:
            await script.arun(connection, asked)
        finally:
            context._connections.give_back(connection)

    def _reconciled(self) -> None:
        self._reconciling = False
        if self.state != "ambiguous":
            self._say("reconciled")

    def _count(self, *, failed: bool) -> None:
        if self.state == "done":
            self._say("done")
        elif failed or self._not_done:
            self._say("failed")
        else:
            self._say("ambiguous")

    def _say(self, result: str) -> None:
        """Once for each block: the first word counts."""
        if not self._counted:
            self._counted = True
            self._context._said.count_effect(result)

    def _lost(self) -> NoReturn:
        self._say("lost")
        raise LostClaim(
            f"the claim of job #{self._context.job_id} is not this attempt's any more: another "
            f"has, or may have, begun. It must not do {self.key!r}, and cannot say that it has"
        )

    def _must_be_entered(self) -> None:
        if not self._entered:
            raise RuntimeError("an effect is done inside its block: with ctx.effect(key) as effect")

    @property
    def _schema(self) -> str:
        return self._context._connections.schema

    def _names(self) -> dict[str, Any]:
        context = self._context
        return {
            "key": self.key,
            "job": context.job_id,
            "session": context.token.session,
            "token": context.token.counter,
        }


class _Written:
    """What `done` returns: nothing to wait for, or what has to be awaited."""

    def __init__(self, effect: Effect | None) -> None:
        self._effect = effect

    def __await__(self) -> Generator[Any, Any, None]:
        if self._effect is not None:
            yield from self._effect._awrite().__await__()


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"ctx.effect: the key must be text, not {type(key).__name__}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise ValueError("ctx.effect: the key has half a character (a lone surrogate)") from None
    if not 1 <= len(key) <= KEY_LENGTH or size > KEY_BYTES or "\0" in key:
        raise ValueError(
            f"ctx.effect: the key must have 1 to {KEY_LENGTH} characters, at most {KEY_BYTES} "
            "bytes in UTF-8, and no NUL: name what is done and to what, invoice-email:1842"
        )
    return key
