"""What a process prints: read in bounded bites, cut into lines, each with the job it belongs to.

A flood is its own process's problem: a turn reads 64 KiB and hands on a few hundred lines, and
while those wait nothing more is read, so the pipe fills and the printing process waits, not the
loop. What must be read at once (a job ends, the process is dead) is kept up to a limit, and beyond
it dropped and counted.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import termios
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

READ_SIZE: Final = 64 * 1024
LINE_LIMIT: Final = 8 * 1024
LINES_A_TURN: Final = 256
#: Lines read and not yet handed on, in bytes. More than one full pipe, so that only a process that
#: floods through job after job loses anything.
BACKLOG_LIMIT: Final = 1024 * 1024

_EMPTY = b"\0\0\0\0"


class Deliver(Protocol):
    """Takes one line, without its newline, and the job that printed it."""

    def __call__(self, job_id: int | None, line: str, /) -> None: ...


class Output:
    """The reading end of one process's standard output and error; owns the descriptor."""

    def __init__(
        self,
        descriptor: int,
        loop: asyncio.AbstractEventLoop,
        job_id: Callable[[], int | None],
        deliver: Deliver,
        dropped: Callable[[int], None],
    ) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = loop
        self._job_id = job_id
        self._deliver = deliver
        self._dropped = dropped
        self._partial = b""  # the line that has not ended yet
        self._chunks: deque[tuple[int | None, bytes]] = deque()  # whole lines, not yet handed on
        self._position = 0  # in the first chunk
        self._backlog = 0  # bytes in the chunks
        self._count = bytearray(4)
        self._open = True
        self._reading = False
        self._ended = False
        self._handing_on = False
        self._read_on()

    def waiting(self) -> bool:
        """Whether something is in the pipe, or half a line here. Cheap: asked after every job."""
        if not self._open:
            return False
        fcntl.ioctl(self._descriptor, termios.FIONREAD, self._count)
        return self._count != _EMPTY or bool(self._partial)

    def job_ended(self) -> None:
        """Reads what is in the pipe now: all of it was printed by the job that still runs."""
        self._read()
        self._end_line()
        self._hand_on()

    def finish(self) -> None:
        """The process is dead: reads what it left, as far as one pipe goes, and closes.

        Somebody may still hold the other end and go on writing; nobody waits for that.
        """
        if not self._open:
            return
        self._read()
        self._read()
        self._end_line()
        self._stop_reading()
        self._open = False
        os.close(self._descriptor)
        self._hand_on()

    def _readable(self) -> None:
        self._read()
        self._hand_on()

    def _read(self) -> None:
        if not self._open:
            return
        try:
            data = os.read(self._descriptor, READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # every writer is gone; the process's own end comes by its pidfd
            self._ended = True
            self._stop_reading()
            return
        lines, newline, rest = (self._partial + data).rpartition(b"\n")
        if newline:
            self._keep(lines)
        whole = len(rest) - len(rest) % LINE_LIMIT
        if whole:
            self._keep(rest[:whole])
        self._partial = rest[whole:]

    def _end_line(self) -> None:
        if self._partial:
            self._keep(self._partial)
            self._partial = b""

    def _keep(self, chunk: bytes) -> None:
        if self._backlog + len(chunk) > BACKLOG_LIMIT:
            self._dropped(len(chunk))
            return
        self._backlog += len(chunk)
        self._chunks.append((self._job_id(), chunk))

    def _hand_on_more(self) -> None:
        self._handing_on = False
        self._hand_on()

    def _hand_on(self) -> None:
        """A turn's worth of lines; the rest in later turns, with nothing read until then."""
        budget = LINES_A_TURN
        while self._chunks and budget > 0:
            budget -= self._deliver_next_line()
        if not self._chunks:
            self._read_on()
        elif not self._handing_on:
            self._stop_reading()
            self._handing_on = True
            self._loop.call_soon(self._hand_on_more)

    def _deliver_next_line(self) -> int:
        """In as many pieces as it needs; says how many."""
        job_id, chunk = self._chunks[0]
        start = self._position
        end = chunk.find(b"\n", start)
        if end < 0:
            end = len(chunk)
            self._chunks.popleft()
            self._backlog -= len(chunk)
            self._position = 0
        else:
            self._position = end + 1
        pieces = range(start, end, LINE_LIMIT) or (start,)
        for piece in pieces:
            text = chunk[piece : min(piece + LINE_LIMIT, end)].decode("utf-8", "backslashreplace")
            try:
                self._deliver(job_id, text)
            except Exception as error:  # in the middle of a job's end; that must go on
                self._loop.call_exception_handler(
                    {"message": "a line of output was not taken", "exception": error}
                )
        return len(pieces)

    def _read_on(self) -> None:
        if self._open and not self._reading and not self._ended:
            self._loop.add_reader(self._descriptor, self._readable)
            self._reading = True

    def _stop_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._descriptor)
            self._reading = False
