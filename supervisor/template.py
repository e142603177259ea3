"""The template, as its supervisor sees it: a process that forks slots when asked.

Its death costs nothing that runs: slots are not its children. Whoever owns this starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from jobctl.store.cron_spec import CronSpec
from jobctl.store.job_type import JobType
from jobctl.supervisor import strays
from jobctl.supervisor.exits import UNKNOWN_EXIT, ExitReason, describe_exit
from jobctl.supervisor.output import Output
from jobctl.workerproc import frames, launch
from jobctl.workerproc.frames import FrameError, Kind
from jobctl.workerproc.launch import Share

#: A descriptor this high is never one of those that the new process gets.
_OUT_OF_THE_WAY = 16
#: More requests than this do not wait in the template's socket.
SPAWNS_AT_ONCE = 8
#: Seconds: a process whose socket closed has so long to turn out to be dying.
CHANNEL_GRACE = 0.2


class TemplateStage(Enum):
    """Where a template is in its life."""

    LOADING = "loading"
    READY = "ready"  # forks slots
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class TemplateOrder:
    """What a template is started with."""

    app: str
    generation: int
    preload: bool
    environment: Mapping[str, str]  # added to our own
    #: dsn, schema, host: for handlers that want the database. Told through the socket alone.
    access: Mapping[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Declared:
    """What the app says that it can run, and when it wants some of it run."""

    types: list[JobType]
    crons: list[CronSpec]


class TemplateOwner(Protocol):
    """Who decides about it: the fleet."""

    def template_loaded(self, template: Template, threads: int) -> None:
        """The app is imported (or will be, in each slot)."""

    def template_failed(self, template: Template, body: dict[str, Any]) -> None:
        """The app could not be imported; the process is about to leave."""

    def slot_spawned(self, template: Template, life: int, pid: int, why: str) -> None:
        """The process of a slot exists; pid 0: it could not be forked, and this is why."""

    def template_exited(self, template: Template) -> None:
        """It is dead and reaped; `exit` says how. Slots that it had not answered for are in
        `pending`."""

    def template_printed(self, line: str) -> None:
        """A line of its output."""


class Template:
    """One template process."""

    def __init__(
        self, order: TemplateOrder, owner: TemplateOwner, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.order = order
        self.stage = TemplateStage.LOADING
        self.declared: Declared | None = None  # None: not known yet
        self.pending: set[int] = set()  # lives that were asked for and not answered
        self.exit: ExitReason = UNKNOWN_EXIT
        self.failed = False  # said so before it left
        self.too_slow = False  # it was killed because importing took too long
        self._struck = False
        self._owner = owner
        self._loop = loop
        self._inbox = frames.Inbox(1)
        control, output, self.pid = _start(order)
        self._control = control
        self._output = Output(output, loop, lambda: None, self._printed, lambda size: None)
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:  # no descriptor is left; its closed socket tells it to go
            control.close()
            self._output.finish()
            raise
        loop.add_reader(control.fileno(), self._readable)
        loop.add_reader(self._pidfd, self._exited)
        if order.access is not None:
            with contextlib.suppress(OSError):  # it has died already: its pidfd is about to say so
                frames.send(control, frames.pack(Kind.ACCESS, dict(order.access)))

    @property
    def generation(self) -> int:
        return self.order.generation

    def can_spawn(self) -> bool:
        """Whether another slot can be asked for now."""
        return self.stage is TemplateStage.READY and len(self.pending) < SPAWNS_AT_ONCE

    def spawn(
        self, number: int, life: int, mark: str, group: str, share: Share, descriptors: list[int]
    ) -> bool:
        """Asks for a slot. False if it cannot be asked: it is dying or does not listen."""
        body = {"slot": number, "life": life, "mark": mark, "group": group, "share": share}
        try:
            frames.send(self._control, frames.pack(Kind.SPAWN, body), tuple(descriptors))
        except OSError:
            return False
        self.pending.add(life)
        return True

    def read_now(self) -> None:
        """Takes in what it has said already."""
        while self.stage is not TemplateStage.GONE and self._read_frame():
            pass

    def strike(self) -> None:
        """SIGKILL; `template_exited` follows."""
        if self.stage is not TemplateStage.GONE:
            self._struck = True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def dump(self) -> None:
        """Its stack goes to its output: for an import that hangs."""
        if self.stage is not TemplateStage.GONE:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGUSR2)

    def _readable(self) -> None:
        self._read_frame()

    def _read_frame(self) -> bool:
        try:
            frame, descriptors = self._inbox.receive(self._control)
            frames.close_descriptors(descriptors)
            if frame:
                self._take(frame)
                return True
        except BlockingIOError:
            return False
        except (FrameError, OSError):
            pass
        # Closed, broken or talking nonsense: of no more use. Most often it is dying of something
        # else, and its pidfd is about to say so.
        self._loop.remove_reader(self._control.fileno())
        self._loop.call_later(CHANNEL_GRACE, self.strike)
        return False

    def _take(self, frame: bytes) -> None:
        kind = frames.kind_of(frame)
        body = frames.unpack(frame)
        if kind is Kind.SPAWNED:
            life, pid, why = body.get("life"), body.get("pid"), body.get("why")
            if not isinstance(life, int) or life not in self.pending or not isinstance(pid, int):
                raise FrameError("a slot was reported that nobody had asked for")
            self.pending.discard(life)
            if pid > 0 and not strays.is_child(pid):
                pid, why = 0, f"process {pid} did not become the supervisor's child"
            self._owner.slot_spawned(self, life, max(pid, 0), str(why))
        elif kind is Kind.LOADED and self.stage is TemplateStage.LOADING:
            if body.get("preload"):
                self.declared = read_declared(body)
            self.stage = TemplateStage.READY
            threads = body.get("threads")
            self._owner.template_loaded(self, threads if isinstance(threads, int) else 1)
        elif kind is Kind.FAILED and self.stage is TemplateStage.LOADING:
            self.failed = True
            self._owner.template_failed(self, body)
        else:
            raise FrameError(f"a {kind.name} frame came from a template")

    def _exited(self) -> None:
        """Once the pidfd says so. What it said before counts, and slots that it forked live."""
        self.read_now()
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._control.fileno())
        self.stage = TemplateStage.GONE
        with contextlib.suppress(ChildProcessError):
            _, status, _ = os.wait4(self.pid, os.WNOHANG)
            self.exit = describe_exit(status, expected_kill=self._struck)
        os.close(self._pidfd)
        self._control.close()
        self._output.finish()
        self._owner.template_exited(self)

    def _printed(self, job_id: int | None, line: str) -> None:
        self._owner.template_printed(line)


def read_declared(body: dict[str, Any]) -> Declared:
    """What a LOADED or READY frame declares. Raises FrameError: it comes from a stranger."""
    types, crons = body.get("types"), body.get("crons")
    if not isinstance(types, list) or not isinstance(crons, list):
        raise FrameError("the app's job types and crons are not lists")
    try:
        return Declared(
            [JobType.from_dict(one) for one in types], [CronSpec.from_dict(one) for one in crons]
        )
    except Exception as error:  # whatever a stranger's word makes of a constructor
        raise FrameError(f"a declaration cannot be: {error}") from error


def _start(order: TemplateOrder) -> tuple[socket.socket, int, int]:
    """Executes a template. Its socket, the reading end of its output, and its pid.

    By posix_spawn, which needs no fork of this process's memory, no thread and no preparation in
    the child; and by no object of `subprocess`, which would reap by pid on its own account.
    Raises OSError.
    """
    environment = {**os.environ, **order.environment}
    launch.drop_supervisors_own(environment)
    words = {
        "app": order.app,
        "generation": order.generation,
        "preload": order.preload,
        "supervisor": os.getpid(),
    }
    command = [sys.executable, "-m", "jobctl.workerproc.template", json.dumps(words)]
    with contextlib.ExitStack() as after, contextlib.ExitStack() as undo:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(ours.close)
        after.callback(theirs.close)
        reading, writing = os.pipe()
        undo.callback(os.close, reading)
        after.callback(os.close, writing)
        moved = [_moved(end) for end in (theirs.fileno(), writing)]
        for end in moved:
            after.callback(os.close, end)
        pid = os.posix_spawn(
            sys.executable,
            command,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, moved[1], 1),
                (os.POSIX_SPAWN_DUP2, moved[1], 2),
                (os.POSIX_SPAWN_DUP2, moved[0], launch.TEMPLATE_CONTROL),
            ],
            setpgroup=0,  # the terminal's signals are for the supervisor
            setsigmask=(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
        ours.setblocking(False)
        undo.pop_all()
        return ours, reading, pid


def _moved(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
