"""What the supervisor, the template and the slots say to each other.

One SEQPACKET socket a pair, one frame a message, nothing pickled. The frames that every job needs
(`Job`, `Done`) are packed by hand; the rare ones are JSON objects behind their kind. What comes
from a slot comes from a stranger: a frame that does not parse is a reason to kill the slot, never
to raise in the supervisor's loop (`FrameError`).
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import socket
import struct
from enum import IntEnum
from typing import Any, NamedTuple

#: The largest frame that is sent as it is; a larger one travels as a memory file beside its kind.
#: SEQPACKET refuses 256 KiB under the kernel's default buffers.
INLINE_LIMIT = 120 * 1024
#: Room for any frame that a peer may send inline.
RECEIVE_SIZE = 160 * 1024
#: No frame is larger, inline or not: its reader decodes it within one turn of a loop.
FRAME_LIMIT = 8 * 1024 * 1024


class FrameError(Exception):
    """A peer sent something that is not a frame of this protocol."""


class Kind(IntEnum):
    """The first byte of a frame."""

    JOB = 1  # supervisor -> slot: run this
    DONE = 2  # slot -> supervisor: succeeded, without a result
    ENDED = 3  # slot -> supervisor: ended any other way, or with a result (JSON)
    READY = 4  # slot -> supervisor: the app is imported, give me work (JSON)
    STOP = 5  # supervisor -> slot: leave once nothing runs
    NOTE = 6  # slot -> supervisor: something about the running attempt (JSON)
    SPAWN = 7  # supervisor -> template: fork a slot; carries its descriptors (JSON)
    SPAWNED = 8  # template -> supervisor: this is its pid (JSON)
    LOADED = 9  # template -> supervisor: the app is imported; these are its types, crons (JSON)
    FAILED = 10  # template or slot -> supervisor: the app could not be imported (JSON)
    LARGE = 11  # any: the frame is in the memory file that comes with this one
    ACCESS = 12  # supervisor -> template: the way to the database, for handlers that want it (JSON)


class Job(NamedTuple):
    """One attempt, as a slot needs to know it. Seconds are counted from the handler's start."""

    job_id: int
    session_id: int
    token: int
    attempt: int
    max_attempts: int
    schema_version: int
    hard_seconds: float
    soft_seconds: float  # 0: none
    type: str
    queue: str
    key: str | None
    subject: str | None
    args: bytes  # JSON text, decoded only where it runs
    compensating: bool = False  # it is cancelled: its hook is what runs
    traceparent: str | None = None  # of the span that enqueued it


class Done(NamedTuple):
    """A success without a result. Times are CLOCK_MONOTONIC nanoseconds, one clock for all."""

    token: int
    started_ns: int
    ended_ns: int


_JOB = struct.Struct("<BBqqQIIIddHHhhIB")
_DONE = struct.Struct("<BQQQ")
_ABSENT = -1
_CUT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)  # the enum's own operators cost 2 us
#: The size of a DONE frame: with the first byte, enough to know one.
DONE_SIZE = _DONE.size


def pack_job(job: Job) -> bytes:
    """The frame for one attempt."""
    kind = job.type.encode()
    queue = job.queue.encode()
    key = b"" if job.key is None else job.key.encode()
    subject = b"" if job.subject is None else job.subject.encode()
    trace = b"" if job.traceparent is None else job.traceparent.encode()
    return b"".join(
        (
            _JOB.pack(
                Kind.JOB,
                job.compensating,
                job.job_id,
                job.session_id,
                job.token,
                job.attempt,
                job.max_attempts,
                job.schema_version,
                job.hard_seconds,
                job.soft_seconds,
                len(kind),
                len(queue),
                _ABSENT if job.key is None else len(key),
                _ABSENT if job.subject is None else len(subject),
                len(job.args),
                len(trace),
            ),
            kind,
            queue,
            key,
            subject,
            job.args,
            trace,
        )
    )


def unpack_job(frame: bytes) -> Job:
    """Raises FrameError when the frame is not a whole `Job`."""
    try:
        (
            _,
            compensating,
            job_id,
            session_id,
            token,
            attempt,
            max_attempts,
            version,
            hard,
            soft,
            a,
            b,
            c,
            d,
            e,
            f,
        ) = _JOB.unpack_from(frame)
        at = _JOB.size
        kind = frame[at : at + a].decode()
        at += a
        queue = frame[at : at + b].decode()
        at += b
        key = None if c == _ABSENT else frame[at : at + c].decode()
        at += max(c, 0)
        subject = None if d == _ABSENT else frame[at : at + d].decode()
        at += max(d, 0)
        args = frame[at : at + e]
        at += e
        trace = frame[at : at + f].decode() if f else None
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"a job frame of {len(frame)} bytes cannot be read: {error}") from error
    if at + f != len(frame):
        raise FrameError(f"a job frame of {len(frame)} bytes should have {at + f}")
    return Job(
        job_id, session_id, token, attempt, max_attempts, version, hard, soft,
        kind, queue, key, subject, args, bool(compensating), trace,
    )  # fmt: skip


def pack_done(done: Done) -> bytes:
    """The frame for a success without a result."""
    return _DONE.pack(Kind.DONE, done.token, done.started_ns, done.ended_ns)


def unpack_done(frame: bytes) -> Done:
    """Raises FrameError when the frame is not a `Done`."""
    try:
        _, token, started, ended = _DONE.unpack(frame)
    except struct.error as error:
        raise FrameError(f"a done frame of {len(frame)} bytes cannot be read") from error
    return Done(token, started, ended)


def pack(kind: Kind, body: dict[str, Any] | None = None) -> bytes:
    """A frame of one of the rare kinds: its kind and a JSON object, in ASCII."""
    text = json.dumps(body or {}, separators=(",", ":"), allow_nan=False)
    return bytes((kind,)) + text.encode("ascii")


def unpack(frame: bytes) -> dict[str, Any]:
    """The JSON object behind the kind. Raises FrameError."""
    try:
        body = json.loads(frame[1:])
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame's body cannot be read: {error}") from error
    if not isinstance(body, dict):
        raise FrameError("a frame's body is not an object")
    return body


def kind_of(frame: bytes) -> Kind:
    """Raises FrameError for a kind that this version does not know."""
    try:
        return Kind(frame[0])
    except (IndexError, ValueError) as error:
        raise FrameError("a frame of an unknown kind arrived") from error


def send(peer: socket.socket, frame: bytes, descriptors: tuple[int, ...] = ()) -> None:
    """Sends one frame; one that is too large for the socket travels as a memory file.

    Raises what `sendmsg` raises: BlockingIOError when the peer does not read, BrokenPipeError or
    ConnectionResetError when it is gone.
    """
    if len(frame) > INLINE_LIMIT and not descriptors:
        memory = os.memfd_create("jobctl-frame", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(frame)
            _send_with(peer, bytes((Kind.LARGE,)), (memory,))
        finally:
            os.close(memory)
    elif descriptors:
        _send_with(peer, frame, descriptors)
    else:
        peer.send(frame)


class Inbox:
    """Where frames arrive: one buffer, used again and again.

    Room for the largest frame, asked of the allocator anew for each of them, would cost more than
    all the rest of a small job: 17 us of 20.
    """

    __slots__ = ("_buffers", "_room", "_view")

    def __init__(self, most_descriptors: int = 1) -> None:
        buffer = bytearray(RECEIVE_SIZE)
        self._buffers = (buffer,)
        self._view = memoryview(buffer)
        self._room = socket.CMSG_SPACE(most_descriptors * array.array("i").itemsize)

    def receive(self, peer: socket.socket) -> tuple[bytes, list[int]]:
        """One frame and the descriptors that came with it; `b""` when the peer has closed.

        Raises BlockingIOError when nothing is there, FrameError when what came is too large, other
        OSErrors when the connection broke.
        """
        size, ancillary, flags, _ = peer.recvmsg_into(
            self._buffers, self._room, socket.MSG_CMSG_CLOEXEC
        )
        frame = bytes(self._view[:size])
        if not ancillary and not flags & _CUT:
            return frame, []
        descriptors = _descriptors(ancillary)
        if flags & _CUT:
            close_descriptors(descriptors)
            raise FrameError("a frame was larger than any frame may be")
        if frame[:1] == bytes((Kind.LARGE,)):
            if len(descriptors) != 1:
                close_descriptors(descriptors)
                raise FrameError("a large frame came without its memory file")
            return _read_memory(descriptors[0]), []
        return frame, descriptors


def close_descriptors(descriptors: list[int]) -> None:
    """For whoever got descriptors with a frame that should not have had any."""
    for descriptor in descriptors:
        os.close(descriptor)


def _send_with(peer: socket.socket, frame: bytes, descriptors: tuple[int, ...]) -> None:
    rights = array.array("i", descriptors)
    peer.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()


def _read_memory(memory: int) -> bytes:
    try:
        # Only a memory file has seals. Anything else could make its reader wait: a pipe, a file of
        # a server that is away.
        fcntl.fcntl(memory, fcntl.F_GET_SEALS)
        size = os.fstat(memory).st_size
        if size > FRAME_LIMIT:
            raise FrameError(f"a frame of {size} bytes is larger than {FRAME_LIMIT}")
        return os.pread(memory, size, 0)
    except OSError as error:
        raise FrameError(f"a large frame's memory file cannot be read: {error}") from error
    finally:
        os.close(memory)
