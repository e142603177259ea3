"""A slot, as its supervisor sees it: one process, one socket, at most one job.

It knows how to give a job and how to read an answer; it decides nothing about life and death
(`fleet.py`, `kill.py`) and nothing about what an outcome means (the listener). Whatever comes from
the process is a stranger's word: it is checked, and nonsense ends the slot, never the supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from enum import Enum
from time import monotonic_ns
from typing import Any, Protocol

from jobctl.supervisor.endings import check_ending
from jobctl.supervisor.groups import Group
from jobctl.supervisor.listener import Listener, Notice, Reason
from jobctl.supervisor.output import Output
from jobctl.supervisor.stack import Stack
from jobctl.workerproc import frames, progress
from jobctl.workerproc.frames import DONE_SIZE, INLINE_LIMIT, FrameError, Kind
from jobctl.workerproc.launch import page_name
from jobctl.workerproc.page import Page, Started

#: More frames than this wait in no honest slot's socket.
_MOST_FRAMES_WAITING = 64
_DONE = int(Kind.DONE)


class Stage(Enum):
    """Where a slot is in its life. It only ever moves forward, save between IDLE and BUSY."""

    STARTING = "starting"  # asked for; not ready. Ends: READY frame, boot time-out, death
    IDLE = "idle"  # may be given a job
    BUSY = "busy"  # runs `slot.running`
    LEAVING = "leaving"  # runs nothing and was told to leave, or is dying by itself
    KILLING = "killing"  # doomed: whatever it says from now on loses
    GONE = "gone"  # reaped, or given up as unkillable


@dataclass(slots=True)
class Running:
    """What a slot runs, as the processes' side needs to know it; `claim` is the dispatcher's own.

    Seconds are counted from the handler's start. `soft_seconds` 0 means none.
    """

    job_id: int
    token: int
    hard_seconds: float
    soft_seconds: float = 0.0
    memory_bytes: int = 0  # a ceiling for the process while it runs this; 0: none
    cpu_seconds: float = 0.0  # likewise
    claim: Any = None
    given_ns: int = 0  # CLOCK_MONOTONIC, set by `Slot.give`
    started_ns: int = 0  # the rest are the deadlines' own: when the handler started, once known,
    soft_sent: int = 0  # how often a soft time-out was sent,
    soft_due_ns: int = 0  # when the next is due,
    force_due_ns: int = 0  # and from when on it is killed for a cancel; 0: never
    cancel_asked: bool = False  # it has been told
    progress: dict[str, Any] | None = None  # what it said last, read when it ended


class Owner(Protocol):
    """Who decides about a slot: the fleet."""

    def became_ready(self, slot: Slot, body: dict[str, Any]) -> None:
        """Its app is imported."""

    def could_not_load(self, slot: Slot, body: dict[str, Any]) -> None:
        """Its app could not be imported; it is about to leave."""

    def told_to_leave(self, slot: Slot) -> None:
        """It runs nothing and should be gone soon."""

    def lost_channel(self, slot: Slot) -> None:
        """Its socket is closed; perhaps it is dying, perhaps not."""

    def distrust(self, slot: Slot, why: str) -> None:
        """It spoke nonsense."""

    def exited(self, slot: Slot) -> None:
        """Its process has ended and is not reaped."""

    def watch(self, running: Running) -> None:
        """A job was given; somebody may want to keep an eye on it."""


class Slot:
    """One process. Attributes are for reading; only the fleet writes them."""

    __slots__ = (
        "_control", "_descriptor", "_inbox", "_listener", "_loop", "_owner", "_page",
        "finished", "generation", "group", "leaving", "life", "mark", "number", "output", "pid",
        "pidfd", "pool", "ready_ns", "retire_after", "running", "since_ns", "stack", "stage",
        "told_to_leave",
    )  # fmt: skip

    def __init__(
        self,
        owner: Owner,
        listener: Listener,
        loop: asyncio.AbstractEventLoop,
        inbox: frames.Inbox,
        *,
        number: int,
        pool: str,
        generation: int,
        life: int,
        mark: str,
        group: Group | None,
        ends: Ends,
    ) -> None:
        self.number = number
        self.pool = pool
        self.generation = generation
        self.life = life  # counts processes of this supervisor: no two slots share one
        self.mark = mark  # what its descendants carry in their environment
        self.group = group  # the control group that it is in; None: it has none of its own
        self.pid = 0  # until known
        self.pidfd = -1  # likewise
        self.stage = Stage.STARTING
        self.running: Running | None = None
        self.leaving: Reason | None = None  # why it is to leave once nothing runs
        self.told_to_leave = False
        self.finished = 0  # jobs that ended in it, however
        self.retire_after = 0  # recycled after so many jobs; 0: never
        self.since_ns = monotonic_ns()  # when it was asked for
        self.ready_ns = 0  # when it became ready; 0: not yet
        self._owner = owner
        self._listener = listener
        self._loop = loop
        self._inbox = inbox
        self._control = ends.control
        self._descriptor = ends.control.fileno()
        self._page = ends.page
        self.output = Output(ends.output, loop, self._job_id, self._printed, self._dropped)
        self.stack = Stack(ends.stack, loop, self._token)
        loop.add_reader(self._descriptor, self._readable)

    # What the dispatcher does with it -----------------------------------------------------------

    def give(self, running: Running, frame: bytes) -> bool:
        """Hands over one job. False if it cannot be given: the slot is not idle or just died.

        Never blocks. When it is False nothing has reached the slot and the job is still yours.
        """
        if self.stage is not Stage.IDLE:
            return False
        running.given_ns = monotonic_ns()
        if self.group is not None:
            self.group.hold_to(running.memory_bytes)
        try:
            if len(frame) <= INLINE_LIMIT:
                self._control.send(frame)
            else:
                frames.send(self._control, frame)
        except BlockingIOError:
            self._owner.distrust(self, "did not read what it was sent")
            return False
        except OSError as error:
            if isinstance(error, ConnectionError):  # it is dying: its pidfd tells the rest
                self.stage = Stage.LEAVING
            return False
        self.running = running
        self.stage = Stage.BUSY
        self._owner.watch(running)
        return True

    def started(self) -> Started | None:
        """When the handler of what it runs was started, by the page; None if it has not been."""
        started = self._page.started()
        if self.running is None or started.token != self.running.token:
            return None
        return started

    def progress(self) -> tuple[int, dict[str, Any]] | None:
        """How far what it runs is, by the page, and when it said so (monotonic nanoseconds).

        In the words of `dated_progress`; None when it has said nothing that can be read.
        """
        running = self.running
        said = self._page.progress()
        if said is None or running is None or said.token != running.token:
            return None
        words = progress.read(said.body)
        if words is None:
            return None
        now_ns = monotonic_ns()
        plausible = running.given_ns <= said.at_ns <= now_ns
        words["ago"] = (now_ns - said.at_ns) / 1e9 if plausible else 0.0
        return said.at_ns, words

    # What the fleet does with it ----------------------------------------------------------------

    def spawned(self, pid: int) -> None:
        """Its process exists and is a child of ours. Raises OSError if no descriptor is left."""
        self.pidfd = os.pidfd_open(pid)
        self.pid = pid
        self._loop.add_reader(self.pidfd, self._owner.exited, self)

    def offer(self) -> None:
        """It may be given jobs from now on."""
        self.stage = Stage.IDLE
        self._listener.on_idle(self)

    @property
    def is_being_killed(self) -> bool:
        """Nothing that it says counts any more."""
        return self.stage is Stage.KILLING or self.stage is Stage.GONE

    def stop(self) -> None:
        """Nothing runs in it; it is told to leave."""
        self.stage = Stage.LEAVING
        self.told_to_leave = True
        with contextlib.suppress(OSError):  # then it is dying already
            self._control.send(frames.pack(Kind.STOP))
        self._owner.told_to_leave(self)

    def aim_soft_timeout(self, token: int) -> None:
        """SoftTimeout for that claim and no other."""
        self._page.aim_soft_timeout(token)
        self.send_signal(signal.SIGUSR1)

    def aim_cancel(self, token: int) -> None:
        """That claim's handler is asked to cancel, and woken if it waits in an event loop."""
        self._page.aim_cancel(token)
        self.send_signal(signal.SIGUSR1)

    def past_commit_point(self) -> bool:
        """Whether what it runs has said that it can be cancelled no more."""
        return self.running is not None and self._page.committed() == self.running.token

    def send_signal(self, number: signal.Signals) -> None:
        """By pidfd, so never to anybody else."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def strike(self) -> None:
        """SIGKILL for its process and its groups. Only while it is not reaped: until then the
        number of its process group, which is its pid, cannot be anybody else's."""
        if self.group is not None:
            self.group.kill()
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.send_signal(signal.SIGKILL)

    def drain(self) -> None:
        """Reads what it has already said, as if it had just come."""
        for _ in range(_MOST_FRAMES_WAITING):
            if not self._read_frame() or self.stage is Stage.KILLING:
                return

    def stop_listening(self) -> None:
        """Nothing it says counts any more. The socket stays open: to close it is to say go."""
        self._loop.remove_reader(self._descriptor)

    def close(self) -> None:
        """Gives back everything but the pidfd, which goes when the process is reaped."""
        self.stop_listening()
        self._control.close()
        self._page.close()
        self.output.finish()
        self.stack.close()

    def forget_process(self) -> None:
        """It is reaped; its pid means nothing any more."""
        if self.pidfd >= 0:
            self._loop.remove_reader(self.pidfd)
            os.close(self.pidfd)
            self.pidfd = -1

    # What it says -------------------------------------------------------------------------------

    def _readable(self) -> None:
        self._read_frame()

    def _read_frame(self) -> bool:
        """One frame, if there is one. The first lines are the road that every job takes."""
        try:
            frame, descriptors = self._inbox.receive(self._control)
        except BlockingIOError:
            return False
        except FrameError as error:
            self._owner.distrust(self, str(error))
            return False
        except OSError:
            frame, descriptors = b"", []
        if not frame:
            self.stop_listening()
            self._owner.lost_channel(self)
            return False
        running = self.running
        try:
            if len(frame) == DONE_SIZE and frame[0] == _DONE and running is not None:
                done = frames.unpack_done(frame)
                if (
                    done.token != running.token
                    or not running.given_ns <= done.started_ns <= done.ended_ns <= monotonic_ns()
                ):
                    raise FrameError("a success was reported for another claim, or another time")
                self._end()
                self._listener.on_done(self, running, done)
            else:
                self._take_rare(frame, descriptors)
        except FrameError as error:
            self._owner.distrust(self, str(error))
        return True

    def _take_rare(self, frame: bytes, descriptors: list[int]) -> None:
        if descriptors:
            frames.close_descriptors(descriptors)
            raise FrameError("descriptors came with a frame that should have none")
        kind = frames.kind_of(frame)
        body = frames.unpack(frame)
        running = self.running
        if kind is Kind.ENDED and running is not None:
            check_ending(body, running.token, running.given_ns, monotonic_ns())
            if body.get("progressed") is True:  # read now: the next job may overwrite it
                said = self.progress()
                running.progress = None if said is None else said[1]
            self._end()
            self._listener.on_ended(self, running, body)
        elif kind is Kind.NOTE:
            if body.get("leaves") is True and running is not None and self.leaving is None:
                self.leaving = Reason.RECYCLE  # its job has left what the next one must not find
            self._listener.on_note(self, running, body)
        elif kind is Kind.READY and self.stage is Stage.STARTING:
            self._owner.became_ready(self, body)
        elif kind is Kind.FAILED and self.stage is Stage.STARTING:
            self._owner.could_not_load(self, body)
        else:
            raise FrameError(f"a {kind.name} frame came from a slot that was {self.stage.value}")

    def _end(self) -> None:
        """What ran has ended; what it printed is read while that is still known."""
        if self.output.waiting():
            self.output.job_ended()
        self.running = None
        self.finished += 1
        if self.finished == self.retire_after and self.leaving is None:
            self.leaving = Reason.RECYCLE
        if self.leaving is None:
            self.stage = Stage.IDLE
        else:
            self.stop()

    def _job_id(self) -> int | None:
        return None if self.running is None else self.running.job_id

    def _token(self) -> int:
        return 0 if self.running is None else self.running.token

    def _printed(self, job_id: int | None, line: str) -> None:
        self._listener.on_output(self, job_id, line)

    def _dropped(self, size: int) -> None:
        self._listener.on_notice(
            Notice.OUTPUT_DROPPED,
            self,
            f"slot {self.number} printed faster than it could be read: {size} bytes were dropped",
        )


@dataclass(frozen=True, slots=True)
class Ends:
    """The supervisor's ends of what connects it to one slot."""

    control: socket.socket
    page: Page
    output: int
    stack: int


def open_ends(mark: str) -> tuple[Ends, list[int]]:
    """Both sides of all that connects a supervisor and a slot; the second is the slot's, in the
    order of `launch.SPAWN_DESCRIPTORS`, for the caller to send and close.

    Raises OSError, with nothing left open, when no descriptors are left.
    """
    with contextlib.ExitStack() as undo:

        def pipe() -> tuple[int, int]:
            ends = os.pipe()
            for end in ends:
                undo.callback(os.close, end)
            return ends

        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(ours.close)
        undo.callback(theirs.close)
        page = Page.create(page_name(mark))
        undo.callback(os.close, page)
        output, stack = pipe(), pipe()
        ends = Ends(ours, Page(page), output[0], stack[0])
        ours.setblocking(False)
        undo.pop_all()
        return ends, [theirs.detach(), page, output[1], stack[1]]
