"""The application of the tests of processes: handlers that misbehave in every way there is.

They meet the test through files: `started` is made when a handler has begun, `gate` is a FIFO that
holds it until the test opens the other end.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from jobctl.workerproc.context import Context
from jobctl.workerproc.errors import SoftTimeout
from jobctl.workerproc.job import job


@job
def nothing(ctx: Context) -> None:
    pass


@job
def give_back(ctx: Context, value: Any) -> Any:
    return value


@job
def where(ctx: Context) -> dict[str, Any]:
    """What a slot looks like from inside."""
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "group": os.getpgid(0),
        "descriptors": {
            entry.name: str(entry.readlink())
            for entry in Path("/proc/self/fd").iterdir()
            if entry.is_symlink()
        },
        "environment": dict(os.environ),
        "title": Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode(),
        "status": Path("/proc/self/status").read_text(),
        "oom_score_adj": int(Path("/proc/self/oom_score_adj").read_text()),
        "core": Path("/proc/self/limits").read_text(),
        "dice": int.from_bytes(os.urandom(2)) and __import__("random").random(),
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }


@job
def wait(ctx: Context, started: str, gate: str) -> str:
    Path(started).touch()
    return Path(gate).read_text()


@job
def hang_in_c(ctx: Context, started: str | None = None) -> None:
    """Sleeps in C code that holds the interpreter lock: nothing in Python can run."""
    if started:
        Path(started).touch()
    ctypes.PyDLL(None).sleep(60)


@job
def hang_deaf(ctx: Context, started: str) -> None:
    """Hears no signal: not even a dump comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    Path(started).touch()
    signal.pause()


@job
def hang_politely(ctx: Context, started: str) -> None:
    Path(started).touch()
    while True:
        signal.pause()


@job
def late_word(ctx: Context, started: str) -> None:
    """The signal that asks for the stack wakes it, and it ends as if nothing had been."""
    Path(started).touch()
    ctypes.CDLL(None).pause()


@job
async def hang_async(ctx: Context, started: str) -> None:
    Path(started).touch()  # noqa: ASYNC240 - a handler like others
    await asyncio.Event().wait()


@job
def swallow(ctx: Context, times: int) -> str:
    """Lets the soft time-out through only when it has come that often."""
    seen = 0
    while seen < times:
        try:
            signal.pause()
        except SoftTimeout:
            seen += 1
    return f"swallowed {seen}"


@job
def leave(ctx: Context, code: int) -> None:
    os._exit(code)


@job
def call_exit(ctx: Context) -> None:
    sys.exit(3)


@job
def abort(ctx: Context) -> None:
    os.abort()


@job
def fault(ctx: Context) -> None:
    ctypes.string_at(0)


@job
def kill_itself(ctx: Context) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@job
def become_another(ctx: Context) -> None:
    os.execv("/bin/sleep", ["sleep", "60"])  # noqa: S606 - the fault that is tested


@job
def close_everything(ctx: Context) -> None:
    os.closerange(3, 65536)


@job
def speak(ctx: Context, text: str, descriptor: int = 1, newline: bool = True) -> None:
    os.write(descriptor, text.encode() + b"\n" * newline)


@job
def say(ctx: Context, text: str) -> None:
    print(text, end="")  # noqa: T201 - what is tested


@job
def flood(ctx: Context, started: str, line: str) -> None:
    Path(started).touch()
    while True:
        os.write(1, line.encode() * (32768 // len(line)))


@job
def send_raw(ctx: Context, data: str, stay: bool = True) -> None:
    """Writes to the socket that is the slot's own."""
    channel = socket.socket(fileno=os.dup(_own_socket()))
    channel.send(bytes.fromhex(data))
    if stay:
        signal.pause()


@job
def lie_about_start(ctx: Context, started: str) -> None:
    """Scribbles over the page, as if it had begun far in the future."""
    for entry in Path("/proc/self/maps").read_text().splitlines():
        if "jobctl-page" in entry:
            start = int(entry.split("-")[0], 16)
            ctypes.memset(start, 0xFF, mmap.PAGESIZE)
    Path(started).touch()
    signal.pause()


@job
def leave_daemon(ctx: Context, pid_file: str, how: str) -> None:
    """Starts a process that outlives it in a session of its own, then hangs."""
    if how == "exec":
        _put(pid_file, subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
    elif os.fork() == 0:
        os.setsid()
        _put(pid_file, os.getpid())
        while True:
            signal.pause()
    signal.pause()


def _put(path: str, number: int) -> None:
    """So that a reader finds it whole or not at all."""
    Path(f"{path}.new").write_text(str(number))
    Path(f"{path}.new").rename(path)


@job
def hold_output(ctx: Context, pid_file: str) -> None:
    """A child that keeps the output open, and dies only with the slot."""
    daemon = subprocess.Popen(["sleep", "600"])
    Path(pid_file).write_text(str(daemon.pid))
    os._exit(0)


@job
def scatter(ctx: Context) -> int:
    """A process of its own that dies as an orphan; nobody but the supervisor can reap it."""
    middle = os.fork()
    if middle == 0:
        orphan = os.fork()
        os._exit(0 if orphan else 7)
    os.waitpid(middle, 0)
    return middle


def _own_socket() -> int:
    for entry in Path("/proc/self/fd").iterdir():
        number = int(entry.name)
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                return number
        except OSError:
            continue
    raise LookupError("no socket")
