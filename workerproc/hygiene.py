"""What one job must not leave to the next one in its slot.

After every job the state that a process shares with its successors - working directory, umask,
environment, signals, timers, streams and the like - is compared with what the slot was born with,
and put back. What cannot be put back - threads, processes, many descriptors - is a reason to leave:
the slot is replaced before another job sees it. Either way it is said.

The rule is that a job which does nothing must not pay for it: what costs a fraction of a
microsecond is asked every time, the rest after jobs that took so long that nobody notices, and
after every 32nd of the others. Clients that an app keeps for its next jobs (connections, pools,
daemon threads) are not left behind; a pile of them is.
"""

# ruff: noqa: PTH109, PTH116, PTH123, PTH208 - a Path costs more than what is asked here

from __future__ import annotations

# The plain functions: those of `signal` make enums, which costs more than the call.
import _signal  # type: ignore[import-not-found]
import _thread
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import thread as _pools
from dataclasses import dataclass, field
from typing import Final

#: A job that took so long may have started a process.
NOT_SHORT_NS: Final = 300_000
#: One that took so long is looked after thoroughly, and every so-many-th of the shorter ones.
LONG_NS: Final = 2_000_000
EVERY: Final = 32
#: More than these, above what the slot was born with, and nobody means to keep them.
MOST_THREADS: Final = 64
MOST_DESCRIPTORS: Final = 64
#: A thread that is ending anyway may do so.
_LAST_BREATH: Final = 0.05

#: Those that jobs do take, first, and the rest of what the next job would suffer from.
_SIGNALS: Final = tuple(
    int(number)
    for number in (
        signal.SIGALRM, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR2,
        signal.SIGUSR1, signal.SIGPIPE, signal.SIGHUP, signal.SIGQUIT, signal.SIGVTALRM,
        signal.SIGPROF,
    )
)  # fmt: skip
_OFTEN: Final = _SIGNALS[:5]
_DUMP_SIGNAL: Final = _SIGNALS.index(int(signal.SIGUSR2))
_REAL: Final = int(signal.ITIMER_REAL)
_VIRTUAL: Final = int(signal.ITIMER_VIRTUAL)
_PROFILE: Final = int(signal.ITIMER_PROF)
_BLOCK: Final = int(signal.SIG_BLOCK)
_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS: Final = (
    resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
)  # fmt: skip
_TASKS: Final = "/proc/self/task"
_OPEN: Final = "/proc/self/fd"


@dataclass(slots=True)
class Left:
    """What a job left behind, in words for its owner; values are never shown."""

    restored: list[str] = field(default_factory=list)
    for_good: list[str] = field(default_factory=list)  # the slot has to go

    def __bool__(self) -> bool:
        return bool(self.restored or self.for_good)


class Hygiene:
    """Remembers how the slot was born. Made when the app is imported and nothing has run."""

    def __init__(self, kept: Callable[[], int] = int) -> None:
        """`kept`: how many descriptors the slot itself holds open for handlers."""
        self._kept = kept
        self._folder = os.getcwd()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        # The dictionary inside, because comparing through os.environ decodes every name.
        self._environment = dict(_inside(os.environ))
        self._handlers = [_signal.getsignal(number) for number in _SIGNALS]
        self._often = self._handlers[: len(_OFTEN)]
        self._mask = _signal.pthread_sigmask(_BLOCK, ())
        self._socket_timeout = socket.getdefaulttimeout()
        self._streams = (sys.stdout, sys.stderr)
        self._recursion = sys.getrecursionlimit()
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self._processors = os.sched_getaffinity(0)
        self._limits = [resource.getrlimit(which) for which in _LIMITS]
        self._outputs = _outputs()
        self._threads = _thread._count()
        self._born_with = frozenset(threading.enumerate())
        self._tasks = _kernel_threads()
        self._descriptors = _descriptors()
        self._short = 0

    def check(self, took_ns: int) -> Left | None:
        """After a job that took so long. None, nearly always: nothing was left."""
        try:
            cwd = os.getcwd()
        except OSError:  # it was removed
            cwd = ""
        umask = os.umask(self._umask)
        if (
            cwd != self._folder
            or umask != self._umask
            or _inside(os.environ) != self._environment
            or list(map(_signal.getsignal, _OFTEN)) != self._often
            or _signal.getitimer(_REAL)[0]
            or socket.getdefaulttimeout() != self._socket_timeout
            or sys.stdout is not self._streams[0]
            or sys.stderr is not self._streams[1]
            or sys.getrecursionlimit() != self._recursion
            or not gc.isenabled()
            or _thread._count() != self._threads
        ):
            return self._put_right(umask)
        if took_ns < LONG_NS:
            self._short += 1
            if self._short < EVERY and (took_ns < NOT_SHORT_NS or not _has_children()):
                return None
        if (
            list(map(_signal.getsignal, _SIGNALS)) != self._handlers
            or _signal.pthread_sigmask(_BLOCK, ()) != self._mask
            or _signal.getitimer(_VIRTUAL)[0]
            or _signal.getitimer(_PROFILE)[0]
        ):
            return self._put_right(umask)
        return self._look_thoroughly(Left()) or None

    def _put_right(self, umask: int) -> Left | None:
        left = Left()
        for step in (
            self._folder_back, self._environment_back, self._signals_back, self._process_back,
        ):  # fmt: skip
            try:
                step(left)
            except Exception as error:  # what cannot be put back is not passed on
                left.for_good.append(f"something that could not be put back ({error})")
        if umask != self._umask:
            left.restored.append(f"the umask {umask:03o}")
        return self._look_thoroughly(left) or None

    def _folder_back(self, left: Left) -> None:
        try:
            cwd = os.getcwd()
        except OSError:
            cwd = "(it was removed)"
        if cwd != self._folder:
            os.chdir(self._folder)
            left.restored.append(f"the working directory {cwd[:200]!r}")

    def _environment_back(self, left: Left) -> None:
        now, born = _inside(os.environ), self._environment
        if now == born:
            return
        changed = [name for name in (now.keys() | born.keys()) if now.get(name) != born.get(name)]
        for name in changed:
            if name in born:
                os.environb[name] = born[name]
            else:
                del os.environb[name]
        names = sorted(os.fsdecode(name) for name in changed)
        left.restored.append(f"environment variables: {_some(names)}")

    def _signals_back(self, left: Left) -> None:
        # Timers first: one that fires between the two would find its handler gone and kill.
        timers = [which for which in _TIMERS if _signal.getitimer(which)[0]]
        for which in timers:
            signal.setitimer(which, 0)
        if timers:
            left.restored.append("a timer (setitimer or alarm)")
        taken = []
        for place, number in enumerate(_SIGNALS):
            if _signal.getsignal(number) != self._handlers[place]:
                if place == _DUMP_SIGNAL:
                    left.for_good.append("SIGUSR2, by which jobctl asks for stacks")
                    continue
                born = self._handlers[place]
                if born is None:  # not Python's: it cannot be set from here
                    left.for_good.append(f"a handler for {signal.Signals(number).name}")
                    continue
                _signal.signal(number, born)
                taken.append(signal.Signals(number).name)
        if taken:
            left.restored.append(f"signal handlers: {_some(taken)}")
        if _signal.pthread_sigmask(_BLOCK, ()) != self._mask:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            left.restored.append("blocked signals")

    def _process_back(self, left: Left) -> None:
        if socket.getdefaulttimeout() != self._socket_timeout:
            socket.setdefaulttimeout(self._socket_timeout)
            left.restored.append("a default time-out of sockets")
        if (sys.stdout, sys.stderr) != self._streams:
            with contextlib.suppress(Exception):  # a stranger's stream may raise anything
                sys.stdout.flush()
                sys.stderr.flush()
            sys.stdout, sys.stderr = self._streams
            left.restored.append("another sys.stdout or sys.stderr")
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)
            left.restored.append("another recursion limit")
        if not gc.isenabled():
            gc.enable()
            left.restored.append("a garbage collector that was turned off")

    def _look_thoroughly(self, left: Left) -> Left:
        self._short = 0
        looks: tuple[Callable[[Left], None], ...] = (
            self._look_at_threads, self._look_at_children, self._look_at_descriptors,
            self._look_at_limits,
        )  # fmt: skip
        for look in looks:
            try:
                look(left)
            except Exception as error:  # a job that makes it impossible to look is not followed
                left.for_good.append(f"something that cannot be looked at ({error})")
        return left

    def _look_at_threads(self, left: Left) -> None:
        if _thread._count() != self._threads:
            known = self._born_with | _pooled()
            stray = [one for one in threading.enumerate() if one not in known and not one.daemon]
            for thread in stray:
                thread.join(_LAST_BREATH / len(stray))
            names = sorted(thread.name for thread in stray if thread.is_alive())
            if names:
                left.for_good.append(f"{len(names)} threads that still run: {_some(names)}")
            self._threads = _thread._count()
        more = _kernel_threads() - self._tasks
        if more > MOST_THREADS:
            left.for_good.append(f"{more} threads in all, of this job and those before it")

    def _look_at_children(self, left: Left) -> None:
        if not _has_children():
            return
        running = []
        for pid in _children():
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    running.append(pid)
        running = [pid for pid in running if pid != _resource_tracker()]
        if running:
            pids = _some([str(pid) for pid in sorted(running)])
            left.for_good.append(f"{len(running)} processes that still run: {pids}")

    def _look_at_descriptors(self, left: Left) -> None:
        if _outputs() != self._outputs:
            left.for_good.append("another file in the place of its output")
        lowest = os.dup(1)
        os.close(lowest)
        # No more can be open than there are numbers in use below it, so most are not counted.
        if lowest > MOST_DESCRIPTORS:
            more = _descriptors() - self._descriptors - self._kept()
            if more > MOST_DESCRIPTORS:
                left.for_good.append(f"{more} open descriptors, of this job and those before it")

    def _look_at_limits(self, left: Left) -> None:
        limits = [resource.getrlimit(which) for which in _LIMITS]
        if limits != self._limits:
            left.for_good.append("other limits of the process (setrlimit)")
        if os.getpriority(os.PRIO_PROCESS, 0) != self._priority:
            left.for_good.append("another priority (nice)")
        if os.sched_getaffinity(0) != self._processors:
            left.for_good.append("other processors to run on (sched_setaffinity)")


def sentence(left: Left) -> str:
    """For the job's log and the supervisor's."""
    words = []
    if left.restored:
        words.append(f"left {'; '.join(left.restored)}, which was put back")
    if left.for_good:
        words.append(f"left {'; '.join(left.for_good)}, so its process is replaced")
    return "; it ".join(words)


def _inside(environ: os._Environ[str]) -> dict[bytes, bytes]:
    return environ._data  # type: ignore[attr-defined, no-any-return]  # see Hygiene.__init__


def _some(names: list[str], most: int = 5) -> str:
    shown = ", ".join(name[:60] for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _pooled() -> frozenset[threading.Thread]:
    """Workers of thread pools: an app that keeps a pool means to."""
    return frozenset(_pools._threads_queues)


def _kernel_threads() -> int:
    """Of this process, those of C libraries included: a folder for each makes a link."""
    return os.stat(_TASKS).st_nlink - 2


def _descriptors() -> int:
    return len(os.listdir(_OPEN))


def _outputs() -> list[tuple[int, int] | None]:
    """Which files stand behind standard output and error."""
    found: list[tuple[int, int] | None] = []
    for descriptor in (1, 2):
        try:
            stat = os.fstat(descriptor)
            found.append((stat.st_dev, stat.st_ino))
        except OSError:  # closed
            found.append(None)
    return found


def _has_children() -> bool:
    """Dead or alive."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    pids: list[int] = []
    for task in os.listdir(_TASKS):
        with (
            contextlib.suppress(OSError),  # a thread that has just ended
            open(f"{_TASKS}/{task}/children", encoding="ascii") as children,
        ):
            pids += map(int, children.read().split())
    return pids


def _resource_tracker() -> int | None:
    """The helper that multiprocessing keeps for as long as its process lives."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    tracker = getattr(module, "_resource_tracker", None)
    pid = getattr(tracker, "_pid", None)
    return pid if isinstance(pid, int) else None
