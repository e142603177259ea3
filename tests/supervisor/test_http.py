"""The HTTP of probes and scrapes: right answers, and no harm from wrong requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from jobctl.supervisor import http
from jobctl.supervisor.http import Answer, HttpServer, ListenError, health
from jobctl.supervisor.setting_kinds import Address

reasons: list[str] = []
slow_page_is_asked = asyncio.Event()


async def _metrics() -> Answer:
    return Answer(200, b"up 1\n", content_type="text/plain")


async def _broken() -> Answer:
    raise ZeroDivisionError


async def _slow() -> Answer:
    slow_page_is_asked.set()
    await asyncio.Event().wait()
    raise AssertionError


def _with_server(story: Callable[[HttpServer], Awaitable[None]]) -> None:
    async def play() -> None:
        pages = {
            "/metrics": _metrics,
            "/broken": _broken,
            "/slow": _slow,
            "/readyz": health("ready", lambda: reasons),
        }
        server = HttpServer(Address("127.0.0.1", 0), pages)
        await server.start()
        try:
            await story(server)
        finally:
            await server.close()

    asyncio.run(play())


async def _raw(server: HttpServer, request: bytes, *, end: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(request)
    if end:
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def _get(server: HttpServer, path: str, method: str = "GET") -> tuple[int, bytes, bytes]:
    answer = await _raw(server, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


def test_pages_are_served_and_head_has_no_body() -> None:
    """A query is ignored; the length is told either way; every connection is closed."""

    async def story(server: HttpServer) -> None:
        status, head, body = await _get(server, "/metrics?x=1")
        assert (status, body) == (200, b"up 1\n")
        assert b"Content-Type: text/plain" in head
        assert b"Connection: close" in head
        status, head, body = await _get(server, "/metrics", "HEAD")
        assert (status, body) == (200, b"")
        assert b"Content-Length: 5" in head

    _with_server(story)


def test_a_probe_reads_the_reasons() -> None:
    """200 and no reasons, or 503 and all of them."""

    async def story(server: HttpServer) -> None:
        status, _, body = await _get(server, "/readyz")
        assert (status, json.loads(body)) == (200, {"ready": True, "reasons": []})
        reasons.append("it drains")
        status, _, body = await _get(server, "/readyz")
        assert (status, json.loads(body)) == (503, {"ready": False, "reasons": ["it drains"]})
        reasons.clear()

    _with_server(story)


def test_what_is_not_there_or_not_allowed_says_so() -> None:
    """404, 405 with Allow, 500 for a page that fails; the server goes on."""

    async def story(server: HttpServer) -> None:
        assert (await _get(server, "/"))[0] == 404
        status, head, _ = await _get(server, "/metrics", "POST")
        assert status == 405
        assert b"Allow: GET, HEAD" in head
        assert (await _get(server, "/broken"))[0] == 500
        assert (await _get(server, "/metrics"))[0] == 200

    _with_server(story)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\xff\xfe\x00 \xff HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * http.HEADER_LIMIT + b"\r\n\r\n", 431),
        (b"\x16\x03\x01" + b"x" * 3 * http.HEADER_LIMIT, 431),
    ],
)
def test_odd_requests_get_an_answer(request_bytes: bytes, status: int) -> None:
    """Garbage, other protocols, endless headers."""

    async def story(server: HttpServer) -> None:
        answer = await _raw(server, request_bytes)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert (await _get(server, "/metrics"))[0] == 200

    _with_server(story)


def test_a_client_that_leaves_in_the_middle_is_forgotten() -> None:
    """Half a request is no request."""

    async def story(server: HttpServer) -> None:
        assert await _raw(server, b"GET /metr", end=True) == b""
        assert (await _get(server, "/metrics"))[0] == 200

    _with_server(story)


def test_a_slow_client_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has seconds for its request, and nobody waits for it meanwhile."""
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.05)

    async def story(server: HttpServer) -> None:
        assert (await _raw(server, b"GET /metrics HT")).startswith(b"HTTP/1.1 408 ")

    _with_server(story)


def test_too_many_at_once_are_turned_away() -> None:
    """The places are few; those who have one keep it, and the others find them free later."""

    async def story(server: HttpServer) -> None:
        idle = [
            await asyncio.open_connection(*server.address) for _ in range(http.MOST_CONNECTIONS)
        ]
        # Turned away unread, so perhaps with a reset instead of an end.
        with suppress(ConnectionResetError):
            assert await _raw(server, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        for reader, writer in idle:
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert (await reader.read()).endswith(b"up 1\n")
            writer.close()
        assert (await _get(server, "/metrics"))[0] == 200

    _with_server(story)


def test_a_busy_port_is_a_sentence() -> None:
    """It says which address, why, and what to set."""

    async def story(server: HttpServer) -> None:
        with pytest.raises(
            ListenError, match=r"127\.0\.0\.1:\d+: another program .*metrics_listen"
        ):
            await HttpServer(server.address, {}).start()

    _with_server(story)


def test_close_cuts_off_those_who_wait() -> None:
    """A supervisor that ends does not hang on an open connection."""

    async def story(server: HttpServer) -> None:
        asked = asyncio.create_task(_raw(server, b"GET /slow HTTP/1.1\r\n\r\n"))
        await slow_page_is_asked.wait()
        await server.close()
        assert await asked == b""

    _with_server(story)
