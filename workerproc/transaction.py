"""`ctx.transaction()`: what the handler writes and the success of its job, in one commit.

The claim is locked last, just before the commit, and the job is settled by the very statement that
the supervisor uses, under the claim's token: from that commit on the job has succeeded, and the
supervisor finds it so, whatever the handler or its process does afterwards. A claim that was lost
raises LostClaim before the commit, and nothing of the transaction stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobctl.store.dsn import own_search_path
from jobctl.store.json_values import max_args_bytes
from jobctl.workerproc import script
from jobctl.workerproc.errors import LostClaim
from jobctl.workerproc.script import Ask, AsyncConnection, Connection, Script

if TYPE_CHECKING:
    from jobctl.workerproc.context import Context


class JobTransaction:
    """Entered by `with` or `async with`; gives the connection. Once for an attempt."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._connection: Any = None
        self._block: Any = None

    def __enter__(self) -> Connection:
        """A connection in a transaction. Raises RuntimeError when the job has succeeded already."""
        self._begin()
        context = self._context
        connection = context._connections.borrow(context.type, context.deadline)
        self._connection, self._block = connection, connection.transaction()
        try:
            self._block.__enter__()
        except BaseException:
            self._end()
            raise
        return connection

    def __exit__(self, *raised: Any) -> bool:
        """Commits, with the job's success; rolls back if something was raised."""
        try:
            if raised[0] is None:
                try:
                    script.run(self._connection, self._succeed())
                except BaseException as error:
                    self._block.__exit__(type(error), error, error.__traceback__)
                    raise
            swallowed = bool(self._block.__exit__(*raised))
            self._ended_with(raised[0] is None)
            return swallowed
        finally:
            context, connection = self._context, self._connection
            self._end()
            context._connections.give_back(connection)

    async def __aenter__(self) -> AsyncConnection:
        """`__enter__`, for coroutines."""
        self._begin()
        context = self._context
        connection = await context._connections.aborrow(context.type, context.deadline)
        self._connection, self._block = connection, connection.transaction()
        try:
            await self._block.__aenter__()
        except BaseException:
            self._end()
            raise
        return connection

    async def __aexit__(self, *raised: Any) -> bool:
        """`__exit__`, for coroutines."""
        try:
            if raised[0] is None:
                try:
                    await script.arun(self._connection, self._succeed())
                except BaseException as error:
                    await self._block.__aexit__(type(error), error, error.__traceback__)
                    raise
            swallowed = bool(await self._block.__aexit__(*raised))
            self._ended_with(raised[0] is None)
            return swallowed
        finally:
            context, connection = self._context, self._connection
            self._end()
            context._connections.give_back(connection)

    def _begin(self) -> None:
        cancellation = self._context.cancellation
        if cancellation is not None and cancellation.requested_before:
            raise RuntimeError(
                "this job is cancelled, and cannot succeed in its on_cancel hook: write with "
                "ctx.connection()"
            )
        if self._context._said.committed:
            raise RuntimeError(
                "this job has succeeded already, with an earlier ctx.transaction(): write what "
                "belongs to it in one transaction, or what comes later in ctx.connection()"
            )
        if self._context._said.in_transaction:
            raise RuntimeError(
                "a ctx.transaction() is open already: write on its connection, and use "
                "conn.transaction() for savepoints"
            )
        self._context._said.in_transaction = True

    def _ended_with(self, success: bool) -> None:
        if success:
            self._context._said.committed = True
            self._context._steps.end("the success of this job is committed already")

    def _end(self) -> None:
        self._context._said.in_transaction = False
        self._connection = self._block = None

    def _succeed(self) -> Script[None]:
        context = self._context
        schema = context._connections.schema
        token = context.token
        claim = {"job": context.job_id, "session": token.session, "token": token.counter}
        mine = yield Ask("lock_claim", claim, schema)
        if not mine:
            raise LostClaim(
                f"the claim of job #{context.job_id} is not this attempt's any more: another has, "
                "or may have, begun. Nothing of this transaction is kept"
            )
        ((theirs, _),) = yield Ask("set_search_path", {"path": own_search_path(schema)})
        settled = yield Ask(
            "settle_succeeded",
            {
                "jobs": [context.job_id],
                "tokens": [token.counter],
                "results": [context._said.result_text],
                "steps": [context._steps.text()],
                "most_bytes": max_args_bytes(),
                "session": token.session,
                "progress": context._progress_said(),
            },
        )
        if not settled:  # it was ours and locked a moment ago
            raise LostClaim(f"job #{context.job_id} could not be settled; nothing is kept")
        # What is deferred until the commit - triggers, constraints - is the application's.
        yield Ask("set_search_path", {"path": theirs})
