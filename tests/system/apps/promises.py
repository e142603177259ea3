"""Handlers that use what a handler is promised: effects, transactions, progress.

They meet the test through files in its folder, as those of `work.py` do: a step waits until the
test has seen it, and has killed what it wants to kill.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import jobctl
from jobctl import Retry

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])
QUICK = Retry(max_attempts=10, max_crashes=10, min_backoff="10ms", max_backoff="20ms")


def step(name: str) -> None:
    """Says that it is here, and goes on when the test lets it: at once if NAME.go is there."""
    with (FOLDER / f"{name}.here").open("a") as file:
        file.write(f"{os.getpid()}\n")
    while not (FOLDER / f"{name}.go").exists():
        time.sleep(0.01)


def act(what: str, ctx: jobctl.Context) -> None:
    """The world outside: one line for each time."""
    with (FOLDER / f"{what}.acts").open("a") as file:
        file.write(f"{ctx.job_id} {ctx.attempt}\n")


@jobctl.job(retry=QUICK)
def have_effect(ctx: jobctl.Context, name: str, mode: Any, ask: bool = False) -> dict[str, Any]:
    """Steps: before, marked, acted, done."""

    def reconcile(effect: jobctl.Effect) -> None:
        acted = (FOLDER / f"{name}.acts").exists()
        if acted:
            effect.done({"found": True})
        else:
            effect.not_done()

    step(f"{name}.before")
    with ctx.effect(name, mode=mode, reconcile=reconcile if ask else None) as effect:
        state = effect.state
        if effect.todo:
            step(f"{name}.marked")
            act(name, ctx)
            step(f"{name}.acted")
            effect.done({"receipt": effect.key})
    step(f"{name}.done")
    return {"state": state, "value": effect.value}


@jobctl.job(retry=QUICK)
async def have_effect_async(ctx: jobctl.Context, name: str) -> dict[str, Any]:
    async with ctx.effect(name) as effect:
        if effect.todo:
            act(name, ctx)
            await effect.done({"receipt": effect.key})
    async with ctx.effect(name) as again:
        assert not again.todo
    async with ctx.connection() as conn:
        cursor = await conn.execute("SHOW statement_timeout")
        row = await cursor.fetchone()
    return {"value": again.value, "row": list(row or ())}


@jobctl.job(retry=QUICK)
def pay(ctx: jobctl.Context, name: str, then: str = "return") -> dict[str, Any] | None:
    """Writes into `paid` and succeeds in one transaction; steps: written, committed."""
    with ctx.transaction() as conn:
        conn.execute("INSERT INTO paid (job, attempt) VALUES (%s, %s)", (ctx.job_id, ctx.attempt))
        ctx.result = {"paid": name}
        step(f"{name}.written")
    step(f"{name}.committed")
    match then:
        case "raise":
            raise ValueError("after the commit")
        case "hang":
            time.sleep(600)
        case "exit":
            os._exit(3)
        case "return something":
            return {"late": True}
        case "enter again":
            with ctx.transaction():
                pass
    return None


@jobctl.job(retry=QUICK)
async def pay_async(ctx: jobctl.Context) -> None:
    async with ctx.transaction() as conn:
        await conn.execute("INSERT INTO paid (job, attempt) VALUES (%s, %s)", (ctx.job_id, 1))
        ctx.result = {"paid": "async"}


@jobctl.job(retry=Retry(max_attempts=1))
def pay_and_think_again(ctx: jobctl.Context) -> str:
    """What is rolled back leaves nothing, and the job goes on."""
    with contextlib.suppress(KeyError), ctx.transaction() as conn:
        conn.execute("INSERT INTO paid (job, attempt) VALUES (%s, 1)", (ctx.job_id,))
        raise KeyError("not today")
    return "nothing was paid"


@jobctl.job(retry=QUICK)
def count_up(ctx: jobctl.Context, name: str, total: int, then: str = "return") -> None:
    """Says how far it is at each of `total`, then waits for the test."""
    if ctx.attempt == 1:
        for done in range(total + 1):
            ctx.progress("counting", done=done, total=total)
    step(name)
    match then:
        case "raise" if ctx.attempt == 1:
            raise ValueError("later")
        case "exit" if ctx.attempt == 1:
            os._exit(3)


@jobctl.job
def say_quickly(ctx: jobctl.Context, phase: str) -> None:
    """Arguments cannot hold NUL, so it is spelt."""
    ctx.progress(phase.replace("NUL", "\0"), done=1)


@jobctl.job(timeout="60s")
def look_at_the_connection(ctx: jobctl.Context, soil: bool = False) -> dict[str, Any]:
    """What a lent connection is like; `soil` leaves it in a bad state."""
    with ctx.connection() as conn:
        rows = conn.execute(
            "SELECT pg_backend_pid(), current_setting('statement_timeout'),"
            " current_setting('application_name'), current_setting('search_path'),"
            " current_setting('work_mem'),"
            " (SELECT count(*) FROM pg_locks"
            "  WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
        ).fetchall()
        if soil:
            conn.execute("SELECT pg_advisory_lock(5)")
            conn.execute("SET work_mem = '5MB'")
            conn.execute("CREATE TEMPORARY TABLE soiled (a int)")
    return {"row": list(rows[0]), "environment": dict(os.environ), "threads": _threads()}


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))
