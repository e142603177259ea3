"""The page: a few words of memory that one slot and the supervisor share.

It spares every job a frame: the slot notes here which claim's handler it has started, and when;
the supervisor looks only if it has a question (a deadline, a death). The other way it names the
claim that a soft time-out or a cancel is meant for, so that a late signal cannot hit the next job.
And here a handler's progress stands, however often it says how far it is: nobody is told, the
supervisor looks once a second and when the attempt ends. A handler can scribble over the page like
over any memory of its process; what is read is checked, and the worst that a lie costs is the
liar's own attempt.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import NamedTuple
from zlib import crc32

from jobctl.workerproc.progress import RECORD_LIMIT

SIZE = 4096
_STARTED = struct.Struct("<QQQ")
_TOKEN = struct.Struct("<Q")
_STARTED_AT = 0
_COMMITTED_AT = 24
_SOFT_AT = 64  # a cache line of its own, because the supervisor writes it
_CANCEL_AT = 72
# Two records of progress, written in turn, so that one of them is whole whenever the writer dies:
# a checksum of the rest, its length, its number, whose it is, when it was said.
_PROGRESS = struct.Struct("<IIQQQ")
_PROGRESS_AT = (1024, 2560)


class Started(NamedTuple):
    """Which claim's handler was started last, when (CLOCK_MONOTONIC), and what CPU time the process
    had used by then. Nanoseconds."""

    token: int
    at_ns: int
    cpu_ns: int


class Said(NamedTuple):
    """A record of progress (`progress.py`): of which claim, and when (CLOCK_MONOTONIC)."""

    token: int
    at_ns: int
    body: bytes


class Page:
    """One end's view of the shared memory behind `descriptor`, which stays the caller's."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)
        self._records = 0  # of progress, written from this end

    @staticmethod
    def create(name: str) -> int:
        """A new memory file of the right size, empty. The caller closes it."""
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        os.ftruncate(descriptor, SIZE)
        return descriptor

    def note_started(self, token: int, at_ns: int, cpu_ns: int) -> None:
        """The handler of this claim starts now."""
        _STARTED.pack_into(self._memory, _STARTED_AT, token, at_ns, cpu_ns)

    def started(self) -> Started:
        """What was noted last; `Started(0, 0, 0)` on a fresh page."""
        return Started(*_STARTED.unpack_from(self._memory, _STARTED_AT))

    def aim_soft_timeout(self, token: int) -> None:
        """The next soft time-out signal is meant for this claim only."""
        _TOKEN.pack_into(self._memory, _SOFT_AT, token)

    def soft_timeout_aim(self) -> int:
        """Whom the signal that just came is meant for."""
        (token,) = _TOKEN.unpack_from(self._memory, _SOFT_AT)
        return int(token)

    def aim_cancel(self, token: int) -> None:
        """Somebody wants this claim's job to end. It stays so: other claims have other tokens."""
        _TOKEN.pack_into(self._memory, _CANCEL_AT, token)

    def cancel_aim(self) -> int:
        """Which claim is asked to cancel."""
        (token,) = _TOKEN.unpack_from(self._memory, _CANCEL_AT)
        return int(token)

    def note_committed(self, token: int) -> None:
        """The handler of this claim is past the point until which it can be cancelled; 0: of
        none."""
        _TOKEN.pack_into(self._memory, _COMMITTED_AT, token)

    def committed(self) -> int:
        """Which claim's handler is past that point."""
        (token,) = _TOKEN.unpack_from(self._memory, _COMMITTED_AT)
        return int(token)

    def note_progress(self, token: int, at_ns: int, body: bytes) -> None:
        """How far this claim's attempt is; `body` has at most RECORD_LIMIT bytes."""
        self._records += 1
        at = _PROGRESS_AT[self._records & 1]
        rest = _PROGRESS.pack(0, len(body), self._records, token, at_ns)[4:] + body
        self._memory[at : at + 4 + len(rest)] = crc32(rest).to_bytes(4, "little") + rest

    def progress(self) -> Said | None:
        """What was said last and is whole; None when nothing is."""
        found = [one for at in _PROGRESS_AT if (one := self._record(at)) is not None]
        return max(found)[1] if found else None

    def _record(self, at: int) -> tuple[int, Said] | None:
        """One of the two records, with its number."""
        copy = self._memory[at : at + _PROGRESS.size + RECORD_LIMIT]
        checksum, length, number, token, at_ns = _PROGRESS.unpack_from(copy)
        if not number or length > RECORD_LIMIT:
            return None
        end = _PROGRESS.size + length
        if crc32(copy[4:end]) != checksum:
            return None
        return number, Said(token, at_ns, copy[_PROGRESS.size : end])

    def close(self) -> None:
        """Gives the memory back."""
        self._memory.close()
