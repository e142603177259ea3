"""A link: one direct connection of a supervisor to PostgreSQL, and its whole temper.

Every statement on it has a deadline of our own, on our clock: a black hole that still acknowledges
hangs libpq for ever, and neither keepalives nor the server's time-outs see it. When the deadline
passes the socket is shut down, and the caller gets `Unreachable` like for any other lost
connection. So does a server that has become read-only: a standby now, and the primary elsewhere.
A link never reconnects by itself inside a statement: who runs one learns that the connection was
lost (`Unreachable`), and `ready()` brings the next connection, with full-jitter back-off that only
a connection which lasted ends, and counts it: what rests on an unbroken connection watches
`generation`.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from jobctl.store.dsn import DsnError
from jobctl.store.refusals import with_advice
from jobctl.store.statements import sql as statement_text

#: A statement that has not answered after this long is given up, and its connection with it. More
#: than the server's own limit below: what the server gives up costs no connection.
STATEMENT_SECONDS = 15.0
#: A host with a short lease must know sooner, but a busy server is no black hole.
SHORTEST_PATIENCE = 5.0
#: Reconnects wait a random time up to this, doubling from the first value to the second. The first
#: one does not wait, unless the connection before it lived for less than the second value.
FIRST_BACKOFF, LAST_BACKOFF = 0.1, 5.0

#: How the dispatcher's statements are planned: the few right plans, whatever the statistics say.
#: jit off, because the penalty on a disabled plan type makes PostgreSQL compile a one-page read.
DISPATCH_SETTINGS: Mapping[str, str] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
#: For every link: nobody waits for us, and we wait for nobody.
COMMON_SETTINGS: Mapping[str, str] = {
    "statement_timeout": "10s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "10s",
}

#: What PgBouncer answers to `options`, which every connection of ours has.
_POOLERS_WORDS = "unsupported startup parameter"
_POOLER = (
    "PostgreSQL is reached through a connection pooler ({proof}), and a supervisor needs direct "
    "connections: it listens for the doorbell and holds the leader's lock. Give it the DSN of "
    "PostgreSQL itself; applications may enqueue through the pooler"
)

Row = tuple[Any, ...]
Observer = Callable[[str, float], None]
#: Told the link's name and why it was lost, or None once it is there again.
OnChange = Callable[[str, str | None], None]


def patience_of(lease: float) -> float:
    """How long one statement may take, so that a lease outlives one that is never answered."""
    return min(STATEMENT_SECONDS, max(SHORTEST_PATIENCE, lease / 4))


class Unreachable(Exception):
    """The connection is gone or did not answer in time; nothing is known about what was sent."""


class Link:
    """One connection, named for its use. Use it from one task at a time.

    `observe(statement, seconds)` is called for every statement that ran. `patience` is the deadline
    of a statement, and of a try to connect to one of the servers that the DSN names.
    """

    def __init__(
        self,
        name: str,
        conninfo: str,
        settings: Mapping[str, str],
        observe: Observer = lambda statement, seconds: None,
        on_change: OnChange = lambda link, error: None,
        patience: float = STATEMENT_SECONDS,
    ) -> None:
        self.name = name
        self.generation = 0  # how many connections there have been
        self.connected_at = 0.0  # monotonic
        self.notified: Callable[[str], None] | None = None  # payloads of LISTEN, if set
        self._conninfo = conninfo
        self._settings = {**COMMON_SETTINGS, **settings}
        self._observe = observe
        self._on_change = on_change
        self._patience = patience
        self._down = False  # and said so
        self._connection: psycopg.AsyncConnection[Row] | None = None
        self._backoff = 0.0

    @property
    def connection(self) -> psycopg.AsyncConnection[Row]:
        """The connection itself, for what is not a statement of ours. Raises Unreachable."""
        if self._connection is None:
            raise Unreachable("not connected")
        return self._connection

    @property
    def up(self) -> bool:
        """Whether there is a connection that has not failed yet."""
        return self._connection is not None

    async def ready(self) -> None:
        """Returns once there is a connection; tries for ever."""
        while not self.up:
            if self._backoff:
                await asyncio.sleep(random.uniform(0, self._backoff))  # noqa: S311 - jitter
            try:
                await self.connect()
            except (Unreachable, psycopg.Error) as error:
                self._say_down(_first_line(error))
                self._back_off()

    async def connect(self) -> None:
        """One try. Raises Unreachable, DsnError for a DSN that can never work, or psycopg's error
        when the server refuses."""
        self.drop()
        try:
            async with asyncio.timeout(self._patience * _servers(self._conninfo)):
                connection = await psycopg.AsyncConnection.connect(
                    self._conninfo, autocommit=True, prepare_threshold=None
                )
        except psycopg.ProgrammingError as error:
            # libpq did not even try: no waiting will mend it.
            raise DsnError(f"The DSN cannot be used: {_first_line(error)}") from error
        except (psycopg.OperationalError, TimeoutError, OSError) as error:
            if _POOLERS_WORDS in str(error):
                raise DsnError(_POOLER.format(proof=_first_line(error))) from error
            raise Unreachable(with_advice(_first_line(error))) from error
        self._connection = connection
        self.connected_at = monotonic()
        connection.add_notify_handler(self._on_notify)
        try:
            await self._greet(connection)
        except BaseException:
            self._forget()
            raise
        self.generation += 1
        if self._down:
            self._down = False
            self._on_change(self.name, None)

    async def _greet(self, connection: psycopg.AsyncConnection[Row]) -> None:
        names, values = list(self._settings), list(self._settings.values())
        ((backend, _),) = await self.run("greet", names=names, values=values)
        told = connection.info.backend_pid
        if backend != told:
            proof = f"told process {told}, answered by process {backend}"
            raise DsnError(_POOLER.format(proof=proof))
        # From now on, and not before: a pooler would keep what was prepared for the next one.
        connection.prepare_threshold = 0

    async def run(self, statement: str, /, **parameters: Any) -> list[Row]:
        """Runs the statement of this name and returns its rows.

        Raises Unreachable when the connection is lost or silent; psycopg's errors for what the
        server refuses, with the connection alive.
        """
        return await self.execute(statement, statement_text(statement), **parameters)

    async def execute(self, label: str, text: str, /, **parameters: Any) -> list[Row]:
        """Runs this text; `label` is what metrics call it. Raises as `run` does."""
        connection = self._connection
        if connection is None:
            raise Unreachable("not connected")
        begun = monotonic()
        cut = asyncio.get_running_loop().call_later(self._patience, self._cut, connection)
        asking = asyncio.create_task(self._ask(connection, text, parameters))
        try:
            # Shielded: psycopg would send a cancel request and wait for what comes of it.
            rows = await asyncio.shield(asking)
        except psycopg.Error as error:
            read_only = isinstance(error, psycopg.errors.ReadOnlySqlTransaction)
            if connection.closed or connection.broken or read_only:
                self.drop()
                self._say_down(_first_line(error))
                raise Unreachable(_first_line(error)) from error
            raise
        except asyncio.CancelledError:
            self._cut(connection)
            await asyncio.wait([asking])  # ends at once: it reads the end of its socket
            asking.cancelled() or asking.exception()
            self.drop()
            raise
        finally:
            cut.cancel()
        self._observe(label, monotonic() - begun)
        return rows

    @staticmethod
    async def _ask(
        connection: psycopg.AsyncConnection[Row], text: str, parameters: Mapping[str, Any]
    ) -> list[Row]:
        cursor = await connection.execute(text, parameters)
        return await cursor.fetchall() if cursor.description else []

    async def listen(self, channel: str) -> None:
        """Asks for notifications on this channel. Raises as `run` does."""
        connection = self._connection
        if connection is None:
            raise Unreachable("not connected")
        text = sql.SQL("LISTEN {}").format(sql.Identifier(channel)).as_string(connection)
        await self.execute("listen", text)

    def descriptor(self) -> int | None:
        """The socket to watch for notifications while nothing runs; None when there is none."""
        return None if self._connection is None else self._connection.pgconn.socket

    def take_notifications(self) -> bool:
        """Reads what has arrived on an idle connection. False when the connection is lost."""
        connection = self._connection
        if connection is None:
            return False
        try:
            connection.pgconn.consume_input()
            while notify := connection.pgconn.notifies():
                if self.notified is not None:
                    self.notified(notify.extra.decode(errors="replace"))
        except psycopg.Error as error:
            self.drop()
            self._say_down(_first_line(error))
            return False
        return True

    def backend_pid(self) -> int | None:
        """The server process behind this connection."""
        return None if self._connection is None else self._connection.info.backend_pid

    def drop(self) -> None:
        """Forgets the connection without a word to the server and without waiting."""
        if self._forget():
            if monotonic() - self.connected_at < LAST_BACKOFF:
                self._back_off()
            else:
                self._backoff = 0.0

    async def close(self) -> None:
        """Says goodbye, briefly."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                async with asyncio.timeout(1):
                    await connection.close()

    def _forget(self) -> bool:
        connection, self._connection = self._connection, None
        if connection is None:
            return False
        self._cut(connection)
        connection.pgconn.finish()
        return True

    def _back_off(self) -> None:
        self._backoff = min(max(self._backoff * 2, FIRST_BACKOFF), LAST_BACKOFF)

    def _say_down(self, error: str) -> None:
        if not self._down:
            self._down = True
            self._on_change(self.name, error)

    def _on_notify(self, notify: psycopg.Notify) -> None:
        if self.notified is not None:
            self.notified(notify.payload)

    @staticmethod
    def _cut(connection: psycopg.AsyncConnection[Row]) -> None:
        """Wakes whoever waits for the server, with an error; works whatever the network does."""
        with (
            suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(connection.pgconn.socket)) as stream,
        ):
            stream.shutdown(socket.SHUT_RDWR)


def _servers(conninfo: str) -> int:
    """How many servers may be tried one after the other."""
    words = conninfo_to_dict(conninfo)
    return max(str(words.get(name, "")).count(",") + 1 for name in ("host", "hostaddr"))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
