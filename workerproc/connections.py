"""The slot's own connections to PostgreSQL: opened when a handler needs one, kept for the next.

What a handler is lent ends with its job at the latest. Between two jobs a connection is put back to
how it was born - no transaction, no setting, no lock, nothing prepared - and one that cannot be put
back at once is closed. While it is lent, no statement of it outlives the job's deadline, and a
transaction that a stopped process holds open is ended by the server then.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg import pq
from psycopg.rows import tuple_row

from jobctl.store.dsn import handlers_conninfo
from jobctl.workerproc import script
from jobctl.workerproc.access import Access
from jobctl.workerproc.script import Ask, AsyncConnection, Connection, Script

#: More than these of one kind are not kept: a transaction, and an effect inside it.
MOST_KEPT: Final = 2
#: A server that takes longer to tidy a connection than this is not waited for.
TIDY_SECONDS: Final = 1.0
_LONGEST_MS: Final = 2**31 - 1

_Any = Connection | AsyncConnection
T = TypeVar("T")


@dataclass(slots=True)
class _Kept:
    """An async connection and the loop that it belongs to."""

    connection: AsyncConnection
    loop: asyncio.AbstractEventLoop


class NoDatabase(RuntimeError):
    """This context was made without a way to the database."""


class Connections:
    """All connections of one slot, or of a test; `access` None: there is no way to a database."""

    def __init__(self, access: Access | None) -> None:
        self._access = access
        self._idle: list[Connection] = []
        self._async_idle: list[_Kept] = []
        self._lent: set[_Any] = set()
        self._used = False  # since the last tidying
        self._process = os.getpid()
        self._strangers: tuple[object, ...] = ()  # kept from being closed

    @property
    def schema(self) -> str:
        """Where jobctl's tables are. Raises NoDatabase."""
        return self._the_access().schema

    def borrow(self, job_type: str, deadline: float) -> Connection:
        """An autocommit connection whose statements end by `deadline` (`time.monotonic()`)."""
        self._begin()
        while (kept := _last(self._idle)) is not None:
            try:
                script.run(kept, self._hello(job_type, deadline))
            except psycopg.Error:  # the server was started again meanwhile: open another
                finish(kept)
            else:
                self._lent.add(kept)
                return kept
        connection: Connection = psycopg.connect(
            self._conninfo(), autocommit=True, prepare_threshold=None
        )
        self._lent.add(connection)
        script.run(connection, self._hello(job_type, deadline))
        return connection

    async def aborrow(self, job_type: str, deadline: float) -> AsyncConnection:
        """`borrow`, for coroutines."""
        self._begin()
        loop = asyncio.get_running_loop()
        while (kept := _last(self._async_idle)) is not None:
            try:
                if kept.loop is not loop:
                    raise psycopg.OperationalError("its event loop is gone")
                await script.arun(kept.connection, self._hello(job_type, deadline))
            except psycopg.Error:
                finish(kept.connection)
            else:
                self._lent.add(kept.connection)
                return kept.connection
        connection: AsyncConnection = await psycopg.AsyncConnection.connect(
            self._conninfo(), autocommit=True, prepare_threshold=None
        )
        self._lent.add(connection)
        await script.arun(connection, self._hello(job_type, deadline))
        return connection

    def give_back(self, connection: _Any) -> None:
        """It is not needed any more; kept for the next who asks, if nothing is going on in it."""
        self._lent.discard(connection)
        if not _is_at_rest(connection):
            finish(connection)
        elif isinstance(connection, psycopg.Connection):
            self._idle.append(connection)
        else:
            self._async_idle.append(_Kept(connection, asyncio.get_running_loop()))

    def tidy(self) -> None:
        """After a job: ends what it still holds, and makes the rest as good as new."""
        if not self._used:
            return
        self._used = False
        for connection in self._lent:
            finish(connection)
        self._lent.clear()
        self._idle = [one for one in self._idle if _renewed(one)][:MOST_KEPT]
        self._async_idle = [one for one in self._async_idle if _renewed(one.connection)][:MOST_KEPT]

    def close(self) -> None:
        """Closes them all."""
        for connection in (*self._lent, *self._idle, *(one.connection for one in self._async_idle)):
            finish(connection)
        self._lent.clear()
        self._idle.clear()
        self._async_idle.clear()

    def __len__(self) -> int:
        """How many are open: each is a descriptor of this process."""
        return len(self._idle) + len(self._async_idle) + len(self._lent)

    def _begin(self) -> None:
        self._used = True
        if self._process != os.getpid():
            # A child of the handler's: these sockets are its parent's, and it must not touch them.
            self._process = os.getpid()
            self._strangers = (*self._idle, *self._async_idle, *self._lent)
            self._idle, self._async_idle, self._lent = [], [], set()

    def _hello(self, job_type: str, deadline: float) -> Script[None]:
        remains = (deadline - monotonic()) * 1000
        milliseconds = 0 if math.isinf(remains) else min(max(1, int(remains)), _LONGEST_MS)
        name = f"{self._the_access().name} {job_type}"
        yield Ask("lend_connection", {"milliseconds": str(milliseconds), "name": name})

    def _conninfo(self) -> str:
        access = self._the_access()
        return handlers_conninfo(access.dsn, application_name=access.name)

    def _the_access(self) -> Access:
        if self._access is None:
            raise NoDatabase(
                "this ctx has no way to the database: it was made by hand, or by run or attempt of "
                "jobctl.testing, which have none. Run the job in a supervisor, or with drain of "
                "the fixture jobctl_queue of jobctl.testing"
            )
        return self._access


def _last(kept: list[T]) -> T | None:
    """Taken off; another thread of the handler may have been quicker."""
    try:
        return kept.pop()
    except IndexError:
        return None


def finish(connection: _Any) -> None:
    """Closes it without waiting for anybody; what was not committed never happens."""
    connection.pgconn.finish()


def _is_at_rest(connection: _Any) -> bool:
    pgconn = connection.pgconn
    return (
        pgconn.transaction_status == pq.TransactionStatus.IDLE
        and pgconn.pipeline_status == pq.PipelineStatus.OFF
    )


def _renewed(connection: _Any) -> bool:
    """Whether it is as it was when it was opened. If not, it is closed."""
    changed = (connection.isolation_level, connection.read_only, connection.deferrable)
    try:
        if (
            _is_at_rest(connection)
            and connection.autocommit
            and changed == (None, None, None)
            and _discard_all(connection.pgconn)
        ):
            connection.row_factory = tuple_row
            return True
    except psycopg.Error:
        pass  # the server has closed it
    finish(connection)
    return False


def _discard_all(pgconn: Any) -> bool:
    """Locks, settings, temporary tables, LISTEN: all of it. False if that takes too long.

    Not through the connection: nobody could say how long that waits, and the next job is here.
    """
    pgconn.send_query(b"DISCARD ALL")
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    until = monotonic() + TIDY_SECONDS
    while pgconn.flush():
        pass
    done = False
    while True:
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                return done
            done = result.status == pq.ExecStatus.COMMAND_OK
        left = until - monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return False
        pgconn.consume_input()
