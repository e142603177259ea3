"""The control socket: commands in, answers out, and nothing that is sent stops the loop."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobctl.supervisor import control
from jobctl.supervisor.control import ControlError, ControlServer, Peer, Refusal, peers


async def _status(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"busy": 2, "asked": dict(fields)}


async def _refuse(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    raise Refusal("it is drained already")


async def _fail(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    raise ZeroDivisionError("by nothing")


async def _hang(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    await asyncio.Event().wait()
    return {}


async def _talk_much(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"much": "x" * control.LINE_LIMIT}


COMMANDS = {
    "status": _status, "refuse": _refuse, "fail": _fail, "hang": _hang, "talk": _talk_much,
}  # fmt: skip


def _with_server(folder: Path, story: Callable[[ControlServer], Awaitable[None]]) -> None:
    async def play() -> None:
        server = ControlServer(folder, COMMANDS)
        await server.start()
        try:
            await story(server)
        finally:
            await server.close()

    asyncio.run(play())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def _ask(command: str, folder: Path, **fields: Any) -> dict[str, Any]:
    (peer,) = peers([folder])
    return await asyncio.to_thread(peer.ask, command, **fields)


async def _raw(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def test_a_command_is_asked_and_answered(tmp_path: Path) -> None:
    """The fields of the request reach the command; what it returns comes back."""

    async def story(server: ControlServer) -> None:
        assert await _ask("status", tmp_path, wait=True) == {"busy": 2, "asked": {"wait": True}}

    _with_server(tmp_path, story)


def test_only_the_user_may_enter(tmp_path: Path) -> None:
    """0700 around 0600; the name holds the process number."""

    async def story(server: ControlServer) -> None:
        assert server.path.name == f"supervisor-{os.getpid()}.sock"
        assert _mode(server.path) == 0o600
        assert _mode(tmp_path) == 0o700
        assert [peer.pid for peer in peers([tmp_path])] == [os.getpid()]

    _with_server(tmp_path, story)
    assert list(tmp_path.iterdir()) == []


def test_refusals_faults_and_unknown_commands_are_sentences(tmp_path: Path) -> None:
    """Whatever goes wrong, the asker learns it and the next question is answered."""

    async def story(server: ControlServer) -> None:
        for command, words in (
            ("refuse", "it is drained already"),
            ("fail", "fail failed: ZeroDivisionError: by nothing"),
            ("nonsense", "the commands here are fail, hang"),
            ("talk", "the answer has more than"),
        ):
            with pytest.raises(ControlError, match=words):
                await _ask(command, tmp_path)
        assert (await _ask("status", tmp_path))["busy"] == 2

    _with_server(tmp_path, story)


@pytest.mark.parametrize(
    "request_line",
    [
        b"\n",
        b"not json\n",
        b"[]\n",
        b"{}\n",
        b'{"command": []}\n',
        b'{"command": null}\n',
        b"\xff\xfe\n",
        b"[" * 20_000 + b"\n",
        b"x" * (3 * control.LINE_LIMIT),
    ],
)
def test_what_is_no_request_gets_an_error_and_no_more(tmp_path: Path, request_line: bytes) -> None:
    """Malformed, nested and endless lines."""

    async def story(server: ControlServer) -> None:
        answer = json.loads(await _raw(server.path, request_line))
        assert answer["ok"] is False
        assert (await _ask("status", tmp_path))["busy"] == 2

    _with_server(tmp_path, story)


def test_a_command_that_hangs_and_a_client_that_says_nothing_are_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a time limit, and neither delays the others."""
    monkeypatch.setattr(control, "COMMAND_SECONDS", 0.05)
    monkeypatch.setattr(control, "REQUEST_SECONDS", 0.05)

    async def story(server: ControlServer) -> None:
        reader, writer = await asyncio.open_unix_connection(str(server.path))
        with pytest.raises(ControlError, match="has not answered within"):
            await _ask("hang", tmp_path)
        assert await reader.read() == b""
        writer.close()

    _with_server(tmp_path, story)


def test_close_does_not_wait_for_those_who_listen(tmp_path: Path) -> None:
    """A supervisor that ends does not hang on an open connection."""

    async def story(server: ControlServer) -> None:
        reader, writer = await asyncio.open_unix_connection(str(server.path))
        writer.write(b'{"command": "status"}\n')
        assert json.loads(await reader.readline())["ok"]
        await server.close()
        assert await reader.read() == b""
        writer.close()

    _with_server(tmp_path, story)


def test_a_dead_supervisors_socket_is_removed(tmp_path: Path) -> None:
    """kill -9 leaves the file; whoever looks next tidies up. Other files are left alone."""
    dead = tmp_path / "supervisor-4194305.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead))
    (tmp_path / "supervisor-x.sock").touch()
    assert peers([tmp_path, tmp_path / "missing"]) == []
    assert [path.name for path in tmp_path.iterdir()] == ["supervisor-x.sock"]


def test_a_live_supervisors_socket_is_not_taken_over(tmp_path: Path) -> None:
    """Two containers may share the folder and give the same process number."""

    async def story(server: ControlServer) -> None:
        with pytest.raises(ControlError, match="runtime_dir"):
            await ControlServer(tmp_path, COMMANDS).start()

    _with_server(tmp_path, story)


def test_a_deep_folder_is_no_obstacle(tmp_path: Path) -> None:
    """The kernel's limit for a socket's name is 107 bytes."""
    deep = tmp_path / ("x" * 100) / ("y" * 100)

    async def story(server: ControlServer) -> None:
        assert (await _ask("status", deep))["busy"] == 2

    _with_server(deep, story)


def test_asking_one_who_is_gone_says_so(tmp_path: Path) -> None:
    """The error names the process and the place."""
    with pytest.raises(ControlError, match="process number 7 does not answer at"):
        Peer(7, tmp_path / "supervisor-7.sock").ask("status")
