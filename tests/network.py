"""A network between a client and PostgreSQL that does what a test tells it.

It listens on a Unix socket that libpq finds (`host=FOLDER`), because the embedded server listens
on nothing else, and the kernel still says who connects: the proxy is the same user. What it does to
the bytes is what a network does: it is slow, it cuts, it swallows and goes on acknowledging (a
black hole, in one direction or both), it refuses. A connection of which bytes were swallowed is cut
when the network is well again: half a message would be worse than none.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from time import monotonic

from jobctl.store.cluster import DATABASE, PORT, ROLE


class Weather(Enum):
    """What the network is like."""

    FAIR = auto()
    BLACK_HOLE = auto()  # takes everything, forwards nothing
    DEAF = auto()  # what clients say arrives; no answer comes back
    REFUSING = auto()  # nobody is let in


@dataclass(eq=False)
class _Pipe:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    swallowed: bool = False

    def cut(self) -> None:
        for end in (self.client, self.server):
            if end is not None:
                end.transport.abort()


@dataclass
class Proxy:
    """Forwards from a socket in `folder` to the socket `upstream`. Use it from any one thread."""

    folder: Path
    upstream: Path
    delay: float = 0.0  # seconds for each piece, in each direction
    arrivals: list[float] = field(default_factory=list)  # monotonic: who came, let in or not
    _weather: Weather = Weather.FAIR
    _pipes: set[_Pipe] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        path = self.folder / f".s.PGSQL.{PORT}"
        path.unlink(missing_ok=True)
        starting = asyncio.run_coroutine_threadsafe(
            asyncio.start_unix_server(self._serve, path), self._loop
        )
        self._server = starting.result(10)

    def dsn(self, dbname: str = DATABASE) -> str:
        return f"postgresql://{ROLE}@/{dbname}?host={self.folder}&port={PORT}"

    def change(self, weather: Weather, delay: float = 0.0) -> None:
        """From now on, for every connection. Fair weather cuts those that lost something."""

        def now() -> None:
            self._weather, self.delay = weather, delay
            if weather is Weather.FAIR:
                for pipe in [one for one in self._pipes if one.swallowed]:
                    pipe.cut()
            if weather is Weather.REFUSING:
                self._cut_all()

        self._do(now)

    def cut(self) -> None:
        """Every connection ends; new ones are let in."""
        self._do(self._cut_all)

    def switch(self, upstream: Path) -> None:
        """To another server; every connection ends."""

        def now() -> None:
            self.upstream = upstream
            self._cut_all()

        self._do(now)

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            self._cut_all()
            mine = asyncio.all_tasks() - {asyncio.current_task()}
            for task in mine:
                task.cancel()
            await asyncio.gather(*mine, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _cut_all(self) -> None:
        for pipe in list(self._pipes):
            pipe.cut()

    def _do(self, what: Callable[[], None]) -> None:
        done: Future[None] = Future()

        def run() -> None:
            what()
            done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.arrivals.append(monotonic())
        pipe = _Pipe(writer)
        if self._weather is Weather.REFUSING:
            pipe.cut()
            return
        self._pipes.add(pipe)
        try:
            if self._weather is Weather.BLACK_HOLE:
                pipe.swallowed = True
                while await reader.read(65536):
                    pass
                return
            answers, pipe.server = await asyncio.open_unix_connection(self.upstream)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(pipe, reader, pipe.server, {Weather.BLACK_HOLE}))
                both.create_task(
                    self._pump(pipe, answers, writer, {Weather.BLACK_HOLE, Weather.DEAF})
                )
        except* OSError:
            pass  # one of them is gone, so both are
        finally:
            pipe.cut()
            self._pipes.discard(pipe)

    async def _pump(
        self,
        pipe: _Pipe,
        source: asyncio.StreamReader,
        drain: asyncio.StreamWriter,
        swallowing: set[Weather],
    ) -> None:
        while data := await source.read(65536):
            if self.delay:
                await asyncio.sleep(self.delay)
            if self._weather in swallowing:
                pipe.swallowed = True
                continue
            drain.write(data)
            await drain.drain()
        with suppress(OSError):
            pipe.cut()
