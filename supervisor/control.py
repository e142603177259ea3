"""The control socket: how people and scripts on this host speak to a running supervisor.

One Unix socket for each supervisor, `supervisor-PID.sock`, in a folder that only its user may
enter. A request is a line of JSON, `{"command": "drain", ...}`, and so is its answer,
`{"ok": true, "answer": {...}}` or `{"ok": false, "error": "a sentence"}`. The rule: whatever is
sent here, by whomever, costs the supervisor a bounded read and an answer; the loop goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobctl.store.errors import JobctlError
from jobctl.supervisor.folders import make_private
from jobctl.supervisor.visitors import Visitors

#: A command gets the fields of the request and returns what to answer. It may raise `Refusal`.
Command = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]

LINE_LIMIT = 64 * 1024  # bytes of a request or an answer
MOST_CONNECTIONS = 32
REQUEST_SECONDS = 10.0  # for a request to arrive, or an answer to be taken
COMMAND_SECONDS = 30.0  # for a command to answer
_NAME, _ENDING = "supervisor-", ".sock"


class ControlError(JobctlError):
    """The supervisor could not be asked, or said no; a sentence."""


class Refusal(Exception):
    """A command cannot do what was asked; the sentence is the answer."""


class ControlServer:
    """The supervisor's end. `commands` are called in the supervisor's loop, one a request."""

    def __init__(self, folder: Path, commands: Mapping[str, Command]) -> None:
        self.path = folder / f"{_NAME}{os.getpid()}{_ENDING}"
        self._commands = commands
        self._server: asyncio.Server | None = None
        self._visitors = Visitors(self._converse, MOST_CONNECTIONS)

    async def start(self) -> None:
        """Listens from now on. Raises FolderError, ControlError or OSError."""
        make_private(self.path.parent)
        if _answers(self.path):
            raise ControlError(
                f"{self.path} belongs to a running supervisor with our process number, in another "
                "container: give each its own runtime_dir."
            )
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        # It gets its name only when it listens: until then a connection would be refused, and
        # whoever looks would take the socket for a dead supervisor's and remove it.
        unborn = self.path.with_suffix(".new")
        try:
            unborn.unlink(missing_ok=True)
            with _within(unborn) as address:
                listener.bind(address)
            unborn.chmod(0o600)
            listener.listen(MOST_CONNECTIONS)
            unborn.rename(self.path)
            self._server = await asyncio.start_unix_server(
                self._visitors.serve, sock=listener, limit=LINE_LIMIT
            )
        except BaseException:
            listener.close()
            raise

    async def close(self) -> None:
        """Listens no more; whoever still waits for an answer is cut off."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self.path.unlink(missing_ok=True)
        await self._visitors.send_away()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await self._answer_one(reader, writer):
            pass

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        go_on = True
        async with asyncio.timeout(REQUEST_SECONDS):
            try:
                line = await reader.readline()
            except ValueError:  # what asyncio makes of a line above the limit
                line, go_on = b"", False
                answer = _error(f"a request has at most {LINE_LIMIT} bytes")
        if go_on:
            if not line:
                return False
            answer = await self._answer(line)
        data = _line(answer)
        if len(data) > LINE_LIMIT:
            data = _line(_error(f"the answer has more than {LINE_LIMIT} bytes"))
        writer.write(data)
        async with asyncio.timeout(REQUEST_SECONDS):
            await writer.drain()
        return go_on

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            name = request.pop("command")
            command = self._commands[name]
        except (ValueError, RecursionError, AttributeError, TypeError):
            return _error('a request is a JSON object such as {"command": "status"}')
        except KeyError:
            return _error(f"the commands here are {', '.join(sorted(self._commands))}")
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                return {"ok": True, "answer": dict(await command(request))}
        except Refusal as refusal:
            return _error(str(refusal))
        except TimeoutError:
            return _error(
                f"{name} has not answered within {COMMAND_SECONDS:g} s; it may yet happen"
            )
        except Exception as error:  # the asker hears of it; the supervisor goes on
            return _error(f"{name} failed: {type(error).__name__}: {error}")


@dataclass(frozen=True)
class Peer:
    """A supervisor on this host, as others see it."""

    pid: int
    path: Path

    def ask(
        self, command: str, *, within: float = COMMAND_SECONDS, **fields: Any
    ) -> dict[str, Any]:
        """Sends one command and returns its answer. Raises ControlError."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
                stream.settimeout(within)
                _connect(stream, self.path)
                stream.sendall(_line({"command": command, **fields}))
                with stream.makefile("rb") as lines:
                    line = lines.readline(LINE_LIMIT + 1)
        except OSError as error:
            raise ControlError(
                f"The supervisor with process number {self.pid} does not answer at {self.path}: "
                f"{error.strerror or error}."
            ) from error
        try:
            answer = json.loads(line)
            if answer["ok"]:
                return dict(answer["answer"])
            reason = str(answer["error"])
        except (ValueError, KeyError, TypeError) as error:
            raise ControlError(
                f"The supervisor with process number {self.pid} ended without an answer."
            ) from error
        raise ControlError(f"The supervisor with process number {self.pid} says: {reason}.")

    def is_there(self) -> bool:
        """Whether it still listens."""
        return _answers(self.path)


def peers(folders: Iterable[Path]) -> list[Peer]:
    """The supervisors that listen in these folders. What dead ones left is removed."""
    found = []
    for folder in folders:
        for path in sorted(folder.glob(f"{_NAME}*{_ENDING}")):
            number = path.name[len(_NAME) : -len(_ENDING)]
            if not number.isdecimal():
                continue
            if _answers(path):
                found.append(Peer(int(number), path))
    return found


def _answers(path: Path) -> bool:
    """Whether somebody listens there; a socket that nobody listens on any more is removed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(REQUEST_SECONDS)
        try:
            _connect(stream, path)
        except ConnectionRefusedError:
            with suppress(OSError):
                path.unlink()
            return False
        except BlockingIOError:
            return True  # its queue of connections is full: busy, not dead
        except OSError:
            return False
    return True


def _connect(stream: socket.socket, path: Path) -> None:
    with _within(path) as address:
        stream.connect(address)


@contextmanager
def _within(path: Path) -> Iterator[str]:
    """A short name for a socket: the kernel takes 107 bytes, and folders can be deep."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), default=str).encode("ascii") + b"\n"


def _error(sentence: str) -> dict[str, Any]:
    return {"ok": False, "error": sentence}
