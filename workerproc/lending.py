"""`ctx.connection()`: a connection of the slot's, for as long as a block lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobctl.workerproc.script import AsyncConnection, Connection

if TYPE_CHECKING:
    from jobctl.workerproc.context import Context


class Lending:
    """Entered by `with` or `async with`; gives the connection."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._connection: Any = None

    def __enter__(self) -> Connection:
        """Raises psycopg.OperationalError when PostgreSQL does not answer."""
        context = self._context
        connection = context._connections.borrow(context.type, context.deadline)
        self._connection = connection
        return connection

    def __exit__(self, *raised: object) -> None:
        """What was not committed is not."""
        self._context._connections.give_back(self._connection)

    async def __aenter__(self) -> AsyncConnection:
        """`__enter__`, for coroutines."""
        context = self._context
        connection = await context._connections.aborrow(context.type, context.deadline)
        self._connection = connection
        return connection

    async def __aexit__(self, *raised: object) -> None:
        """`__exit__`, for coroutines."""
        self._context._connections.give_back(self._connection)
