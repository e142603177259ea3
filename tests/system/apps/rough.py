"""Handlers that do what they should not; each meets the test through files in its folder."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jobctl
from jobctl import Retry

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.system.sabotage import take_out

take_out(os.environ.get("JOBCTL_TEST_WITHOUT", ""))

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])
ONCE = Retry(max_attempts=1)
QUICK = Retry(max_attempts=10, min_backoff="10ms", max_backoff="20ms")


def leave_a_mark(name: str, ctx: jobctl.Context) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(f"{ctx.job_id} {ctx.attempt} {os.getpid()}\n")


def wait_for(name: str) -> None:
    while not (FOLDER / name).exists():
        time.sleep(0.01)


@jobctl.job
def hold(ctx: jobctl.Context, name: str) -> None:
    """Leaves a mark and waits for NAME.go."""
    leave_a_mark(name, ctx)
    wait_for(f"{name}.go")


@jobctl.job
def nothing(ctx: jobctl.Context) -> None:
    return None


# Time ---------------------------------------------------------------------------------------------


@jobctl.job(timeout="1500ms", soft_timeout="200ms", retry=ONCE)
def swallow(ctx: jobctl.Context, name: str) -> None:
    """Takes every soft time-out for nothing."""
    while True:
        try:
            while True:
                time.sleep(0.01)
        except jobctl.SoftTimeout:
            leave_a_mark(name, ctx)


@jobctl.job(timeout="30s", soft_timeout="200ms", retry=ONCE)
def tidy_up(ctx: jobctl.Context, name: str) -> None:
    """Lets it through, having tidied up."""
    try:
        wait_for("never")
    finally:
        leave_a_mark(name, ctx)


@jobctl.job(timeout="1s", soft_timeout="200ms", retry=ONCE)
def hang_in_c(ctx: jobctl.Context, name: str) -> None:
    """Where no Python signal handler runs, whatever wakes it."""
    leave_a_mark(name, ctx)
    sum(itertools.repeat(0))


@jobctl.job(timeout="30s", soft_timeout="10s", retry=ONCE)
def unhurried(ctx: jobctl.Context, name: str) -> str:
    """Has a soft time-out far away; NAME.go ends it."""
    leave_a_mark(name, ctx)
    try:
        wait_for(f"{name}.go")
    except jobctl.SoftTimeout:
        return "hit"
    return "unhurt"


@jobctl.job(timeout="1s", retry=ONCE)
def freeze(ctx: jobctl.Context, name: str, group: str) -> None:
    """Moves into a frozen control group, where not even SIGKILL is heard."""
    leave_a_mark(name, ctx)
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)


@jobctl.job(retry=QUICK)
def hold_deaf(ctx: jobctl.Context, name: str) -> None:
    """Hears no signal and holds the interpreter."""
    leave_a_mark(name, ctx)
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    sum(itertools.repeat(0))


@jobctl.job
def leave_an_orphan(ctx: jobctl.Context) -> int:
    """A process whose parent ends first, so that somebody else has to reap it."""
    middle = os.fork()
    if middle == 0:
        orphan = os.fork()
        if orphan == 0:
            time.sleep(0.1)
        os._exit(0)
    os.waitpid(middle, 0)
    return os.getpid()


@jobctl.job
def leave_a_daemon(ctx: jobctl.Context, name: str) -> int:
    """A process in a session of its own that no slot sees any more."""
    middle = os.fork()
    if middle == 0:
        os.setsid()
        daemon = os.fork()
        if daemon == 0:
            (FOLDER / name).write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    os.waitpid(middle, 0)
    wait_for(name)
    return os.getpid()


@jobctl.job(timeout="2s", retry=ONCE)
def hide_and_hang(ctx: jobctl.Context, name: str) -> None:
    """A process that nothing ties to its slot any more, and then a hang."""
    hide(name)
    wait_for("never")


@jobctl.job
def hide_and_return(ctx: jobctl.Context, name: str) -> int:
    """The same, left behind."""
    hide(name)
    return os.getpid()


def hide(name: str) -> None:
    """Another session, another parent, another program, no environment."""
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            (FOLDER / name).write_text(str(os.getpid()))
            os.closerange(3, 1000)
            os.execve("/bin/sleep", ["sleep", "600"], {})  # noqa: S606 - that is the point
        os._exit(0)
    os.waitpid(middle, 0)
    wait_for(name)


# Deaths -------------------------------------------------------------------------------------------


@jobctl.job(retry=ONCE)
def die(ctx: jobctl.Context, how: str) -> None:
    match how:
        case "exit 0":
            os._exit(0)
        case "exit 7":
            os._exit(7)
        case "abort":
            os.abort()
        case "fault":
            ctypes.string_at(0)
        case "term":
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exec":
            os.execv("/bin/sleep", ["sleep", "600"])  # noqa: S606 - that is the incident
        case "close":
            os.closerange(3, 1000)
            time.sleep(600)
        case "work":
            end = time.process_time() + 0.3
            filled = bytearray(b"x") * (64 * 2**20)
            while time.process_time() < end:
                pass
            del filled
            os._exit(3)


@jobctl.job(retry=QUICK)
def kill_supervisor(ctx: jobctl.Context, name: str) -> None:
    """A poison job that takes the whole host with it."""
    leave_a_mark(name, ctx)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


@jobctl.job(retry=QUICK)
def poison(ctx: jobctl.Context, name: str) -> None:
    leave_a_mark(name, ctx)
    os._exit(1)


# Memory and CPU -----------------------------------------------------------------------------------


@jobctl.job(memory="300MiB", retry=Retry(max_attempts=5, min_backoff="10ms", max_crashes=2))
def eat(ctx: jobctl.Context, name: str) -> None:
    leave_a_mark(name, ctx)
    eaten = []
    for _ in range(80):
        eaten.append(bytearray(b"x") * (8 * 2**20))
        time.sleep(0.002)
    wait_for("never")


@jobctl.job(retry=jobctl.Retry(max_attempts=5, max_crashes=2, min_backoff="10ms"))
def devour(ctx: jobctl.Context, name: str) -> None:
    """Whatever there is. No ceiling of its type's stands in the way."""
    leave_a_mark(name, ctx)
    eaten = []
    while True:
        eaten.append(bytearray(b"x") * (8 * 2**20))


@jobctl.job(cpu="500ms", retry=ONCE)
def burn(ctx: jobctl.Context) -> None:
    while True:
        pass


_KEPT: list[bytearray] = []


@jobctl.job
def leak(ctx: jobctl.Context, mebibytes: int) -> int:
    _KEPT.append(bytearray(b"x") * (mebibytes * 2**20))
    return os.getpid()


@jobctl.job
def oom_score(ctx: jobctl.Context) -> int:
    return int(Path("/proc/self/oom_score_adj").read_text())


# What is left behind ------------------------------------------------------------------------------


@jobctl.job(retry=ONCE)
def leave(ctx: jobctl.Context, what: str) -> int:
    """Leaves something; tells its pid."""
    match what:
        case "cwd":
            os.chdir("/")
        case "no cwd":
            gone = FOLDER / "gone"
            gone.mkdir()
            os.chdir(gone)
            gone.rmdir()
        case "umask":
            os.umask(0)
        case "environment":
            os.environ["LEFT_BEHIND"] = "hunter2"
            os.environ.pop("JOBCTL_TEST_WITHOUT")
        case "handlers":
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "timer":
            signal.setitimer(signal.ITIMER_REAL, 0.3)
        case "mask":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            time.sleep(0.005)
        case "socket timeout":
            socket.setdefaulttimeout(0.001)
        case "streams":
            sys.stdout = sys.stderr = None
        case "recursion":
            sys.setrecursionlimit(100)
        case "thread":
            threading.Thread(target=time.sleep, args=(600,), name="forgotten").start()
        case "process":
            pid = subprocess.Popen(["/bin/sleep", "600"]).pid
            (FOLDER / "process").write_text(str(pid))
        case "descriptors":
            for _ in range(100):
                os.open("/dev/null", os.O_RDONLY)
            time.sleep(0.005)
        case "limits":
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            time.sleep(0.005)
        case "output":
            os.close(1)
            os.close(2)
            time.sleep(0.005)
    if what == "failing":
        os.chdir("/")
        raise ValueError("and fails")
    return os.getpid()


@jobctl.job(retry=ONCE)
def look_around(ctx: jobctl.Context) -> dict[str, Any]:
    """What a job finds in its slot."""
    time.sleep(0.5 if signal.getitimer(signal.ITIMER_REAL)[0] else 0)
    umask = os.umask(0o022)
    os.umask(umask)
    return {
        "pid": os.getpid(),
        "cwd": str(Path.cwd()),
        "umask": umask,
        "environment": "LEFT_BEHIND" in os.environ or "JOBCTL_TEST_WITHOUT" not in os.environ,
        "handlers": [repr(signal.getsignal(number)) for number in (signal.SIGCHLD, signal.SIGTERM)],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "socket timeout": socket.getdefaulttimeout(),
        "streams": sys.stdout is not None,
        "recursion": sys.getrecursionlimit(),
        "threads": threading.active_count(),
        "processes": len(Path("/proc/thread-self/children").read_text().split()),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "limits": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
        "output": Path("/proc/self/fd/1").exists(),
    }


@jobctl.job
async def keep_clients(ctx: jobctl.Context) -> int:
    """What apps do keep: an event loop, a pool's threads, a daemon thread, a connection."""
    await asyncio.to_thread(time.sleep, 0)
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    await asyncio.sleep(0.005)
    return os.getpid()


@jobctl.job
def flood(ctx: jobctl.Context, seconds: float) -> int:
    """Prints as fast as it can."""
    line = "x" * 200 + "\n"
    end, lines = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        sys.stdout.write(line * 100)
        lines += 100
    return lines


# What cannot be kept ------------------------------------------------------------------------------


@jobctl.job(retry=ONCE)
def awkward(ctx: jobctl.Context, case: str) -> Any:
    from tests.system.apps.awkward_things import CASES

    return CASES[case]()


@jobctl.job(retry=ONCE)
def size_of(ctx: jobctl.Context, **arguments: Any) -> int:
    return len(json.dumps(arguments))
