"""The handlers of the system tests. They meet the test through files in its folder."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import jobctl
from jobctl import Retry

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])
QUICK = Retry(max_attempts=10, min_backoff="10ms", max_backoff="20ms")


def leave_a_mark(name: str, ctx: jobctl.Context) -> None:
    """One line for each attempt that came here."""
    with (FOLDER / name).open("a") as file:
        file.write(f"{ctx.job_id} {ctx.attempt} {os.getpid()}\n")


@jobctl.job
def add(ctx: jobctl.Context, a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}


@jobctl.job
async def add_later(ctx: jobctl.Context, a: int, b: int) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"sum": a + b}


@jobctl.job(retry=QUICK)
def wait_for(ctx: jobctl.Context, name: str) -> None:
    """Leaves a mark and then waits until the test makes the file NAME.go."""
    leave_a_mark(name, ctx)
    while not (FOLDER / f"{name}.go").exists():
        time.sleep(0.01)


@jobctl.job(retry=QUICK)
def wait_at_a_pipe(ctx: jobctl.Context, name: str) -> None:
    """Waits without any clock, until the test writes to NAME.pipe."""
    leave_a_mark(name, ctx)
    (FOLDER / f"{name}.pipe").read_text()


@jobctl.job(retry=QUICK)
def leave_behind(ctx: jobctl.Context, name: str) -> None:
    """Starts a process in a session of its own, whose number is in NAME.child, and waits."""
    child = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    (FOLDER / f"{name}.child").write_text(str(child.pid))
    leave_a_mark(name, ctx)
    while not (FOLDER / f"{name}.go").exists():
        time.sleep(0.01)


@jobctl.job(timeout="1s", retry=Retry(max_attempts=1))
def hang(ctx: jobctl.Context, name: str) -> None:
    """In C code, with the interpreter's lock held."""
    leave_a_mark(name, ctx)
    ctypes.PyDLL(None).sleep(600)


@jobctl.job(retry=QUICK)
def die(ctx: jobctl.Context, name: str, how: str) -> None:
    """Takes its process with it."""
    leave_a_mark(name, ctx)
    sys.stdout.write(f"dying by {how}\n")
    sys.stdout.flush()
    match how:
        case "exit":
            os._exit(0)
        case "abort":
            os.abort()
        case "segfault":
            ctypes.string_at(0)


@jobctl.job(retry=Retry(max_attempts=3, min_backoff="10ms", max_backoff="20ms"))
def fail(ctx: jobctl.Context, message: str) -> None:
    raise ValueError(message + "\0\ud83d")  # neither can be stored


@jobctl.job
def refuse(ctx: jobctl.Context) -> None:
    raise jobctl.Permanent("cannot ever work", code="NEVER")


@jobctl.job
def unstorable(ctx: jobctl.Context) -> object:
    return {"when": float("nan")}


@jobctl.job(retry=Retry(max_attempts=1))
def fork_and_return(ctx: jobctl.Context) -> None:
    """A child that was meant to leave comes back through the handler."""
    os.fork()
