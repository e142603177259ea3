"""Handlers that can be cancelled; each meets the test through files in its folder."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import jobctl
from jobctl import Retry

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.system.sabotage import take_out

take_out(os.environ.get("JOBCTL_TEST_WITHOUT", ""))

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])
QUICK = Retry(max_attempts=10, min_backoff="10ms", max_backoff="20ms")
SLOW = Retry(max_attempts=10, min_backoff="1h", max_backoff="1h")


def leave_a_mark(name: str, ctx: jobctl.Context) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(f"{ctx.job_id} {ctx.attempt} {os.getpid()} {ctx.cancelled}\n")


def wait_for(name: str) -> None:
    while not (FOLDER / name).exists():
        time.sleep(0.01)


async def appeared(name: str) -> None:
    while not (FOLDER / name).exists():  # noqa: ASYNC110 - the other process only makes a file
        await asyncio.sleep(0.01)


@jobctl.job
def hold(ctx: jobctl.Context, name: str) -> None:
    """Never asks; NAME.go ends it."""
    leave_a_mark(name, ctx)
    wait_for(f"{name}.go")


@jobctl.job
def nothing(ctx: jobctl.Context) -> None:
    return None


@jobctl.job
def unhurt(ctx: jobctl.Context, name: str) -> str:
    """Would say if something that was meant for another had reached it."""
    leave_a_mark(name, ctx)
    try:
        wait_for(f"{name}.go")
        ctx.check()
    except BaseException as error:
        return type(error).__name__
    return "cancelled" if ctx.cancelled else "unhurt"


@jobctl.job
async def unhurt_async(ctx: jobctl.Context, name: str) -> str:
    leave_a_mark(name, ctx)
    try:
        await appeared(f"{name}.go")
        ctx.check()
    except BaseException as error:
        return type(error).__name__
    return "cancelled" if ctx.cancelled else "unhurt"


@jobctl.job(retry=QUICK)
def ask(ctx: jobctl.Context, name: str) -> None:
    """Asks at a safe point again and again."""
    leave_a_mark(name, ctx)
    while True:
        ctx.check()
        time.sleep(0.01)


@jobctl.job(retry=QUICK)
def sum_in_c(ctx: jobctl.Context, name: str) -> None:
    """Where nothing is asked and no Python runs."""
    leave_a_mark(name, ctx)
    sum(itertools.repeat(0))


@jobctl.job(retry=QUICK)
async def await_long(ctx: jobctl.Context, name: str) -> None:
    """Waits in the event loop, with children and a time-out around it."""
    leave_a_mark(name, ctx)
    try:
        async with asyncio.timeout(3600), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(3600))
            group.create_task(asyncio.sleep(3600))
    except asyncio.CancelledError:
        leave_a_mark(f"{name}.cancelled", ctx)
        raise


@jobctl.job(cancel="before_commit")
def commit(ctx: jobctl.Context, name: str) -> str:
    """NAME.commit lets it pass its commit point, NAME.go ends it."""
    leave_a_mark(name, ctx)
    wait_for(f"{name}.commit")
    ctx.commit_point()
    leave_a_mark(f"{name}.committed", ctx)
    while not (FOLDER / f"{name}.go").exists():
        ctx.check()
        time.sleep(0.01)
    return "committed"


@jobctl.job(cancel="before_commit")
async def commit_async(ctx: jobctl.Context, name: str) -> str:
    leave_a_mark(name, ctx)
    await appeared(f"{name}.commit")
    ctx.commit_point()
    leave_a_mark(f"{name}.committed", ctx)
    await appeared(f"{name}.go")
    return "committed"


@jobctl.job(retry=QUICK)
def fail(ctx: jobctl.Context, name: str) -> None:
    """Fails when NAME.go is there, and would be tried again."""
    leave_a_mark(name, ctx)
    wait_for(f"{name}.go")
    raise ValueError("no such invoice")


@jobctl.job(retry=QUICK)
def snooze(ctx: jobctl.Context, name: str) -> None:
    leave_a_mark(name, ctx)
    wait_for(f"{name}.go")
    raise jobctl.Snooze("10ms")


@jobctl.job(retry=SLOW)
def fail_slowly(ctx: jobctl.Context, name: str) -> None:
    leave_a_mark(name, ctx)
    raise ValueError("not now")


# With something to make good --------------------------------------------------------------------


def give_back(ctx: jobctl.Context, name: str, **rest: Any) -> None:
    leave_a_mark(f"{name}.hook", ctx)
    if (FOLDER / f"{name}.hold").exists():
        wait_for(f"{name}.let")
    ctx.check()  # which must not raise here
    if (FOLDER / f"{name}.spoil").exists():
        raise RuntimeError("the bank is closed")


async def give_back_async(ctx: jobctl.Context, name: str) -> None:
    leave_a_mark(f"{name}.hook", ctx)
    await asyncio.sleep(0.05)
    ctx.check()


@jobctl.job(retry=QUICK, on_cancel=give_back)
def book(ctx: jobctl.Context, name: str) -> None:
    leave_a_mark(name, ctx)
    while not (FOLDER / f"{name}.go").exists():
        ctx.check()
        time.sleep(0.01)
    raise ValueError("sold out")


@jobctl.job(retry=SLOW, on_cancel=give_back)
def book_slowly(ctx: jobctl.Context, name: str) -> None:
    leave_a_mark(name, ctx)
    raise ValueError("sold out")


@jobctl.job(retry=QUICK, on_cancel=give_back)
def book_in_c(ctx: jobctl.Context, name: str) -> None:
    leave_a_mark(name, ctx)
    sum(itertools.repeat(0))


@jobctl.job(retry=QUICK, on_cancel=give_back_async)
async def book_async(ctx: jobctl.Context, name: str) -> None:
    leave_a_mark(name, ctx)
    await asyncio.sleep(3600)


# At most once -----------------------------------------------------------------------------------


@jobctl.job(ack="early", retry=QUICK)
def once(ctx: jobctl.Context, name: str) -> str:
    leave_a_mark(name, ctx)
    wait_for(f"{name}.go")
    if (FOLDER / f"{name}.spoil").exists():
        raise ValueError("no")
    return "once"


# Races ------------------------------------------------------------------------------------------


@jobctl.job
def brief(ctx: jobctl.Context, ms: int) -> str:
    time.sleep(ms / 1000)
    ctx.check()
    return "done"


@jobctl.job
async def brief_async(ctx: jobctl.Context, ms: int) -> str:
    await asyncio.sleep(ms / 1000)
    return "done"


@jobctl.job
def stepwise(ctx: jobctl.Context, name: str) -> None:
    """Says how far it is, and asks only if NAME.ask is there."""
    ctx.progress("packing", done=3, total=10)
    leave_a_mark(name, ctx)
    while True:
        if (FOLDER / f"{name}.ask").exists():
            ctx.check()
        time.sleep(0.01)
