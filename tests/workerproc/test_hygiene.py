"""Looking after a job that left nothing costs next to nothing, and finds nothing."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from timeit import repeat

from jobctl.workerproc.hygiene import (
    EVERY,
    LONG_NS,
    MOST_DESCRIPTORS,
    Hygiene,
    Left,
    sentence,
)


def apart(story: Callable[[], None]) -> Callable[[], None]:
    """In a process of its own: the time limit of a test is a timer, which would be found."""

    @functools.wraps(story)
    def test() -> None:
        pid = os.fork()
        if pid == 0:
            try:
                story()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    return test


@apart
def test_a_job_that_does_nothing_pays_for_little() -> None:
    """3 us where this was written; the bound leaves room for slow and busy machines."""
    hygiene = Hygiene()
    assert hygiene.check(0) is None
    assert hygiene.check(LONG_NS) is None
    cost = min(repeat(lambda: hygiene.check(0), number=10 * EVERY, repeat=20)) / (10 * EVERY)
    assert cost < 25e-6, f"{cost * 1e6:.1f} us a job"


@apart
def test_what_is_put_back_is_put_back_for_programs_too() -> None:
    """The environment of what a later job executes, not only `os.environ`."""
    hygiene = Hygiene()
    os.environ["LEFT_BEHIND"] = "secret"
    left = hygiene.check(0)
    assert left is not None and not left.for_good
    assert sentence(left) == "left environment variables: LEFT_BEHIND, which was put back"
    program = [sys.executable, "-c", "import os; print(os.environ.get('LEFT_BEHIND'))"]
    assert subprocess.run(program, capture_output=True, check=True).stdout == b"None\n"
    assert hygiene.check(0) is None


@apart
def test_the_short_ones_are_looked_at_now_and_then() -> None:
    """A child that nobody reaped is gone after a round of them, and is nobody's fault."""
    hygiene = Hygiene()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert [hygiene.check(0) for _ in range(EVERY)] == [None] * EVERY
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
    raise AssertionError("nobody reaped it")


@apart
def test_a_job_takes_other_processors() -> None:
    """The next one would be confined to them, or leave those of its pool."""
    ours = os.sched_getaffinity(0)
    if len(ours) == 1:
        return  # there are no others to take
    hygiene = Hygiene()
    os.sched_setaffinity(0, {min(ours)})
    left = hygiene.check(LONG_NS)
    assert left is not None
    assert left.for_good == ["other processors to run on (sched_setaffinity)"]


def test_words_for_both() -> None:
    """One sentence for the person who reads the log."""
    left = Left(["the umask 000"], ["2 threads that still run: a, b"])
    assert sentence(left) == (
        "left the umask 000, which was put back; it left 2 threads that still run: a, b, so its "
        "process is replaced"
    )


@apart
def test_what_the_slot_itself_keeps_open_is_nobodys() -> None:
    """Connections that it has lent to handlers, and lends again; beside the job's own pile."""
    kept = 0
    hygiene = Hygiene(kept=lambda: kept)
    pile = [os.open(os.devnull, os.O_RDONLY) for _ in range(MOST_DESCRIPTORS + 3)]
    left = hygiene.check(LONG_NS)
    assert left is not None and left.for_good
    kept = 5
    assert hygiene.check(LONG_NS) is None
    for descriptor in pile:
        os.close(descriptor)
