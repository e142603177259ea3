"""Jobs like those of an ordinary day: they wait for something for a while, and some go wrong.

Each attempt writes down when it began and when it ended, with the version of the code that it is;
and it holds a lock on its job while it runs, so that a second run at the same time is found out.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jobctl
from jobctl import Retry

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])
#: What a deploy changes.
VERSION = (FOLDER / "version").read_text().strip()
QUICK = Retry(max_attempts=5, min_backoff="100ms", max_backoff="1s")


def _note(word: str, ctx: jobctl.Context) -> None:
    line = f"{word} {ctx.job_id} {ctx.attempt} {VERSION} {time.time()}\n"
    descriptor = os.open(FOLDER / "diary", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())  # one write of a short line is not torn
    os.close(descriptor)


@contextmanager
def _alone(ctx: jobctl.Context) -> Iterator[None]:
    """The lock is gone when the process is, however it ends."""
    with (FOLDER / "locks" / str(ctx.job_id)).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _note("double", ctx)
        yield


@jobctl.job(timeout="6s", retry=QUICK)
def work(ctx: jobctl.Context, seconds: float, fails: int = 0, hangs: int = 0) -> None:
    """Takes so long; its first attempts fail, or hang until their deadline."""
    _note("began", ctx)
    with _alone(ctx):
        if ctx.attempt <= hangs:
            time.sleep(600)
        time.sleep(seconds)
        if ctx.attempt <= hangs + fails:
            raise ConnectionError("the other service is busy")
    _note("ended", ctx)
