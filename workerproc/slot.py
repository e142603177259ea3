"""The slot's own side: what a freshly forked process does before, between and after jobs.

It shares nothing with its siblings, opens nothing by itself, and leaves by `os._exit` alone: the
stack above it is the template's. It believes its supervisor and nobody else; when the socket
closes, there is nobody left to work for.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import random
import resource
import signal
import socket
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from types import FrameType
from typing import Any, NoReturn

from setproctitle import setproctitle

from jobctl.store.texts import storable
from jobctl.workerproc import frames, hygiene, launch, linux, loading, records
from jobctl.workerproc.access import Access
from jobctl.workerproc.attempt import Attempts
from jobctl.workerproc.connections import Connections
from jobctl.workerproc.frames import Kind
from jobctl.workerproc.hygiene import Hygiene, Left
from jobctl.workerproc.page import Page
from jobctl.workerproc.registry import Registry

_JOB = int(Kind.JOB)
_STOP = int(Kind.STOP)
_ADOPTION_SECONDS = 5.0
_REMARK_LIMIT = 1000
_OOM_SCORE = Path("/proc/self/oom_score_adj")
_DESCRIPTORS = Path("/proc/self/fd")
#: What cannot be reset, and what faulthandler has taken already in the template.
_NOT_RESET = frozenset(
    {
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGUSR2,
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
    }
)


@dataclass(frozen=True, slots=True)
class Birth:
    """All that a slot is given on its way; four of it are descriptors."""

    app: str
    registry: Registry | None  # None: import the app yourself
    supervisor: int
    generation: int
    number: int
    life: int
    mark: str
    group: str  # the file of its control group that takes processes in; empty: it has none
    share: launch.Share
    control: int
    page: int
    output: int
    stack: int
    access: Access | None = None  # the way to the database


def live(birth: Birth) -> NoReturn:
    """The whole life of a slot. Called in the forked process with every signal blocked."""
    code = launch.EXIT_INTERNAL
    try:
        code = _live(birth)
    except (BrokenPipeError, ConnectionResetError):
        code = launch.EXIT_ORPHANED
    except BaseException:  # the last door: tell the supervisor's log, then go
        sys.excepthook(*sys.exc_info())
    finally:
        flush_output()
        os._exit(code)


def _live(birth: Birth) -> int:
    os.setsid()  # no terminal's signals; and one group and one session to kill
    _take_descriptors(birth)
    _take_signals(birth.stack)
    outside = linux.join_group(birth.group) if birth.group else ""
    setproctitle(f"jobctl: slot {birth.number} starting")
    if not _adopted(birth.supervisor):
        return launch.EXIT_ORPHANED
    _stand_aside(birth.share)
    os.environ[launch.MARKER] = birth.mark
    _reseed()
    gc.enable()
    control = socket.socket(fileno=birth.control)
    ready: dict[str, Any] = {"pid": os.getpid(), "life": birth.life, "generation": birth.generation}
    if outside:
        ready["outside"] = outside
    registry = birth.registry
    if registry is None:
        try:
            registry = loading.load(birth.app)
        except loading.LoadError as error:
            frames.send(control, frames.pack(Kind.FAILED, error.body))
            return error.exit_code
        ready |= registry.declared()
    records.install()
    connections = Connections(birth.access)
    attempts = Attempts(registry, Page(birth.page), connections)
    signal.signal(signal.SIGUSR1, attempts.on_signal)
    os.close(birth.page)
    setproctitle(f"jobctl: slot {birth.number} idle")
    frames.send(control, frames.pack(Kind.READY, ready))
    _serve(control, attempts, connections, f"jobctl: slot {birth.number} ")
    return launch.EXIT_CLEAN


def _serve(
    control: socket.socket, attempts: Attempts, connections: Connections, title: str
) -> None:
    """One job after the other, until the supervisor says stop or is gone."""
    receive = frames.Inbox().receive
    mine = os.getpid()
    left_by = Hygiene(kept=connections.__len__).check
    while True:
        frame, _ = receive(control)
        if not frame:
            return
        kind = frame[0]
        if kind == _JOB:
            job = frames.unpack_job(frame)
            setproctitle(f"{title}{job.type} #{job.job_id}")
            began_ns = monotonic_ns()
            records.RUNNING.job = job
            answer = attempts.run(job)
            records.RUNNING.job = None
            if os.getpid() != mine:
                os._exit(0)  # the handler has forked, and its child came back through it
            left = left_by(monotonic_ns() - began_ns)
            if left is not None:
                _remark(control, job.token, left)
            flush_output()  # before the answer: a line belongs to the job that printed it
            frames.send(control, answer)
            connections.tidy()
            setproctitle(f"{title}idle")
        elif kind == _STOP:
            return
        else:
            raise frames.FrameError(f"a slot cannot answer a frame of kind {kind}")


def _remark(control: socket.socket, token: int, left: Left) -> None:
    """Says what the job left behind: in its own log, and to the supervisor, before the answer."""
    words = hygiene.sentence(left)
    with contextlib.suppress(Exception):  # its output may be what it has broken
        os.write(2, f"jobctl: the job {words}\n".encode("utf-8", "backslashreplace"))
    body = {"token": token, "left": storable(words, _REMARK_LIMIT), "leaves": bool(left.for_good)}
    frames.send(control, frames.pack(Kind.NOTE, body))


def _take_descriptors(birth: Birth) -> None:
    """Keeps what is this slot's own and nothing else that could speak to anybody.

    Files that the app opened when it was imported stay: a log file is meant to be shared. Sockets,
    pipes and the like would be shared with every sibling, so they become /dev/null: the numbers
    stay taken, because objects of the app still believe that they own them.
    """
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(birth.output, 1)
    os.dup2(birth.output, 2)
    os.close(birth.output)
    own = {0, 1, 2, birth.control, birth.page, birth.stack, null}
    for descriptor in [int(entry.name) for entry in _DESCRIPTORS.iterdir()]:
        if descriptor not in own and not _may_be_shared(descriptor):
            os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _may_be_shared(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # the listing's own descriptor, already closed
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISCHR(mode)


def _take_signals(stack: int) -> None:
    """The slot's own handlers, then, and only then, an empty mask.

    The C level's handlers write the stacks of all threads to `stack`: on SIGUSR2, and when the
    process crashes.
    """
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - _NOT_RESET:
        if signal.getsignal(number) is not None:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # Python's own default
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, _no_op)
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGUSR2, stack, all_threads=True, chain=False)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _adopted(supervisor: int) -> bool:
    """Whether the supervisor is the parent, and will take this process with it when it dies.

    The parent is the process in between at first, and its end must not be taken for the
    supervisor's.
    """
    parent = os.getppid()
    if parent != supervisor:
        try:
            between = os.pidfd_open(parent)
        except ProcessLookupError:
            between = -1
        if between >= 0:
            if os.getppid() == parent:
                linux.wait_for_exit(between, _ADOPTION_SECONDS)
            os.close(between)
    linux.die_with_parent()
    return os.getppid() == supervisor


def _stand_aside(share: launch.Share) -> None:
    """When memory runs out, a slot goes before its supervisor; and a dying one writes no core.

    Nor does it push the supervisor off its processor when it is woken: what the supervisor does is
    short, and the other slots wait for it. (With as many slots as keep two cores busy, a fifth more
    jobs a second.)
    """
    # All of it before anybody notes what a job finds, and leaves.
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.nice(share.nice)
    if share.cpus:
        with contextlib.suppress(OSError):  # forbidden, or taken away since the supervisor looked
            os.sched_setaffinity(0, share.cpus)
    try:
        score = int(_OOM_SCORE.read_text())
        _OOM_SCORE.write_text(str(min(score + launch.OOM_SCORE_STEP, 1000)))
    except (OSError, ValueError):
        pass  # a container that hides /proc: the kernel decides alone
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def _reseed() -> None:
    """No two slots throw the same dice."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def flush_output() -> None:
    """Writes out what was printed; a handler may have replaced, filled or closed a stream."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a stranger's stream may raise anything
            stream.flush()


def _no_op(signum: int, frame: FrameType | None) -> None:
    """A function, because SIG_IGN would be inherited by whatever a handler executes."""
