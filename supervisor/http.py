"""/metrics, /livez and /readyz: what machines ask a supervisor.

Enough of HTTP for a probe and for Prometheus, in the supervisor's own loop: GET and HEAD, one
request a connection. The rule: no request, however slow, large or odd, costs more than one of a
few places and a few seconds, and none asks PostgreSQL anything.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from jobctl.store.errors import JobctlError
from jobctl.supervisor.setting_kinds import Address
from jobctl.supervisor.visitors import Visitors

HEADER_LIMIT = 16 * 1024  # bytes of a request line with its headers
REQUEST_SECONDS = 5.0  # for a request to arrive
ANSWER_SECONDS = 30.0  # for an answer to be made and taken
MOST_CONNECTIONS = 32

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class ListenError(JobctlError):
    """The address cannot be listened on; the message says why and what to do."""


@dataclass(frozen=True)
class Answer:
    """What is sent back."""

    status: int
    body: bytes
    content_type: str = "application/json"
    allow: str | None = None

    @classmethod
    def of(cls, status: int, **fields: object) -> Answer:
        """An answer in JSON."""
        return cls(status, json.dumps(fields).encode() + b"\n")


#: What answers a path.
Page = Callable[[], Awaitable[Answer]]


def health(name: str, reasons: Callable[[], list[str]]) -> Page:
    """A page for a probe: 200 while there are no reasons against it, else 503 with them."""

    async def page() -> Answer:
        against = reasons()
        return Answer.of(503 if against else 200, **{name: not against, "reasons": against})

    return page


class HttpServer:
    """Serves `pages`, path to page, on one address."""

    def __init__(self, address: Address, pages: dict[str, Page]) -> None:
        self.address = address
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._visitors = Visitors(self._converse, MOST_CONNECTIONS)

    async def start(self) -> None:
        """Listens from now on; port 0 becomes the one that was free. Raises ListenError."""
        try:
            self._server = await asyncio.start_server(
                self._visitors.serve, self.address.host, self.address.port, limit=HEADER_LIMIT
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                why = "another program listens there, perhaps another supervisor"
            else:
                why = (error.strerror or str(error)).lower()
            raise ListenError(
                f"/metrics cannot be served on {self.address}: {why}. "
                "Set metrics_listen to another address, or to off."
            ) from error
        port = self._server.sockets[0].getsockname()[1]
        self.address = Address(self.address.host, port)

    async def close(self) -> None:
        """Listens no more; answers that are under way are cut off."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        await self._visitors.send_away()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = "GET"
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            answer = Answer.of(431, error=f"a request has at most {HEADER_LIMIT} bytes")
        except TimeoutError:
            answer = Answer.of(408, error=f"a request arrives within {REQUEST_SECONDS:g} s")
        else:
            async with asyncio.timeout(ANSWER_SECONDS):
                method, answer = await self._answer(head)
        _send(writer, answer, with_body=method != "HEAD")
        async with asyncio.timeout(ANSWER_SECONDS):
            await writer.drain()
        if answer.status == 431:
            writer.write_eof()
            await _read_rest(reader)

    async def _answer(self, head: bytes) -> tuple[str, Answer]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "GET", Answer.of(400, error="this is not an HTTP/1 request")
        method, target, _ = words
        page = self._pages.get(target.split("?", 1)[0])
        if page is None:
            return method, Answer.of(404, error=f"the pages here are {', '.join(self._pages)}")
        if method not in ("GET", "HEAD"):
            refused = Answer.of(405, error="only GET and HEAD")
            return method, Answer(405, refused.body, allow="GET, HEAD")
        try:
            return method, await page()
        except Exception as error:  # one page's fault is no reason to stop supervising
            return method, Answer.of(500, error=f"{type(error).__name__}: {error}")


async def _read_rest(reader: asyncio.StreamReader) -> None:
    """Takes some of what was too long: closing over unread bytes would destroy the answer."""
    async with asyncio.timeout(1):
        for _ in range(64):
            if not await reader.read(HEADER_LIMIT):
                return


def _send(writer: asyncio.StreamWriter, answer: Answer, *, with_body: bool) -> None:
    lines = [
        f"HTTP/1.1 {answer.status} {REASONS[answer.status]}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if answer.allow:
        lines.append(f"Allow: {answer.allow}")
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
    if with_body:
        writer.write(answer.body)
