"""Handlers that succeed, fail, hang, crash and leak, and write down when they run."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import jobctl
from jobctl import Retry
from tests.chaos.history import History

QUICK = Retry(max_attempts=8, min_backoff="50ms", max_backoff="1s")
BEAT = 0.05

_leaked: list[object] = []


@cache
def history(pid: int) -> History:
    return History(Path(os.environ["CHAOS_FOLDER"]), os.environ["CHAOS_HOST"])


@contextmanager
def written_down(ctx: jobctl.Context, tag: str) -> Iterator[None]:
    facts = {"job": ctx.job_id, "session": ctx.token.session, "token": ctx.token.counter}
    history(os.getpid()).say("start", tag=tag, **facts)
    yield
    history(os.getpid()).say("end", **facts)


@jobctl.job(retry=QUICK)
def quick(ctx: jobctl.Context, tag: str) -> dict[str, str]:
    with written_down(ctx, tag):
        return {"tag": tag}


@jobctl.job(retry=QUICK, timeout="20s")
def slow(ctx: jobctl.Context, tag: str, seconds: float) -> None:
    """Shows every moment that it is still there: somebody else may have the job by then."""
    with written_down(ctx, tag):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(BEAT)
            history(os.getpid()).say(
                "beat", job=ctx.job_id, session=ctx.token.session, token=ctx.token.counter
            )


@jobctl.job(retry=QUICK)
def fail(ctx: jobctl.Context, tag: str) -> None:
    with written_down(ctx, tag):
        if random.random() < 0.6:
            raise ValueError("this time not")


@jobctl.job(timeout="1s", retry=Retry(max_attempts=2, min_backoff="50ms", max_backoff="1s"))
def hang(ctx: jobctl.Context, tag: str) -> None:
    """In C code, with the interpreter's lock held."""
    with written_down(ctx, tag):
        ctypes.PyDLL(None).sleep(600)


@jobctl.job(retry=QUICK)
def crash(ctx: jobctl.Context, tag: str) -> None:
    with written_down(ctx, tag):
        if random.random() < 0.7:
            os._exit(random.choice([0, 1, 99]))


@jobctl.job(retry=QUICK)
def effect(ctx: jobctl.Context, tag: str) -> None:
    """Calls a partner who must not be called twice for the same thing, and dies beside it."""
    with written_down(ctx, tag), ctx.effect(f"storm:{tag}") as mark:
        if mark.todo:
            history(os.getpid()).say("act", key=mark.key, job=ctx.job_id)
        if random.random() < 0.3:
            os._exit(random.choice([0, 1]))


@jobctl.job(retry=QUICK)
def leak(ctx: jobctl.Context, tag: str) -> None:
    """Memory, a descriptor and a process in a session of its own stay behind."""
    with written_down(ctx, tag):
        _leaked.append(bytearray(4 << 20))
        _leaked.append(os.open(os.devnull, os.O_RDONLY))
        _leaked.append(subprocess.Popen(["/bin/sleep", "60"], start_new_session=True))
