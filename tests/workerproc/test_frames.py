"""Frames: what is packed comes out, and what was not packed here raises FrameError or nothing."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.workerproc import frames
from jobctl.workerproc.frames import Done, FrameError, Inbox, Job, Kind

WORDS = st.text("ax é\0\u2400😀", max_size=40)
UNSIGNED = st.integers(0, 2**64 - 1)
BIGINT = st.integers(-(2**63), 2**63 - 1)
JOBS = st.builds(
    Job,
    job_id=BIGINT,
    session_id=BIGINT,
    token=UNSIGNED,
    attempt=st.integers(0, 2**32 - 1),
    max_attempts=st.integers(0, 2**32 - 1),
    schema_version=st.integers(0, 2**32 - 1),
    hard_seconds=st.floats(allow_nan=False),
    soft_seconds=st.floats(allow_nan=False),
    type=WORDS,
    queue=WORDS,
    key=st.none() | WORDS,
    subject=st.none() | WORDS,
    args=st.binary(max_size=200),
    compensating=st.booleans(),
    traceparent=st.none() | st.just("00-" + 32 * "a" + "-" + 16 * "b" + "-01"),
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connected pair; reading does not wait."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.setblocking(False)
    with one, other:
        yield one, other


@given(JOBS)
def test_a_job_comes_out_as_it_went_in(job: Job) -> None:
    """Every field, and absent ones stay absent."""
    assert frames.unpack_job(frames.pack_job(job)) == job


@given(st.builds(Done, UNSIGNED, UNSIGNED, UNSIGNED))
def test_a_success_comes_out_as_it_went_in(done: Done) -> None:
    """And its size is the one that it is known by."""
    frame = frames.pack_done(done)
    assert frames.unpack_done(frame) == done
    assert len(frame) == frames.DONE_SIZE


@given(st.binary(max_size=300), st.sampled_from(Kind))
def test_any_bytes_are_a_frame_or_a_frame_error(data: bytes, kind: Kind) -> None:
    """Nothing else may come of a stranger's bytes."""
    for read in (frames.unpack_job, frames.unpack_done, frames.unpack, frames.kind_of):
        for frame in (data, bytes((kind,)) + data):
            try:
                read(frame)
            except FrameError:
                continue


@given(JOBS, st.data())
def test_a_piece_of_a_job_is_no_job(job: Job, data: st.DataObject) -> None:
    """Cut anywhere."""
    frame = frames.pack_job(job)
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(FrameError):
        frames.unpack_job(frame[:cut])


@pytest.mark.parametrize("size", [0, 1, frames.INLINE_LIMIT - 1, frames.INLINE_LIMIT, 3_000_000])
def test_frames_of_any_size_travel(pair: tuple[socket.socket, socket.socket], size: int) -> None:
    """The large ones in a memory file, and no descriptor is left over."""
    one, other = pair
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    frame = frames.pack(Kind.NOTE, {"text": "x" * size})
    frames.send(one, frame)
    assert Inbox().receive(other) == (frame, [])
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_nothing_there_and_nobody_there(pair: tuple[socket.socket, socket.socket]) -> None:
    """Two different answers."""
    one, other = pair
    with pytest.raises(BlockingIOError):
        Inbox().receive(other)
    one.close()
    assert Inbox().receive(other) == (b"", [])


def test_descriptors_come_with_their_frame(pair: tuple[socket.socket, socket.socket]) -> None:
    """As many as there is room for; more is an error, and nothing leaks."""
    one, other = pair
    reading, writing = os.pipe()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    frames.send(one, b"\x07{}", (reading, writing))
    frame, descriptors = Inbox(2).receive(other)
    assert frame == b"\x07{}" and len(descriptors) == 2
    assert not any(os.get_inheritable(descriptor) for descriptor in descriptors)
    frames.close_descriptors(descriptors)
    frames.send(one, b"\x07{}", (reading,) * 9)
    with pytest.raises(FrameError):
        Inbox(1).receive(other)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    os.close(reading)
    os.close(writing)


def test_a_large_frame_in_something_else(pair: tuple[socket.socket, socket.socket]) -> None:
    """A pipe in place of a memory file would make its reader wait for ever."""
    one, other = pair
    reading, writing = os.pipe()
    with open(os.devnull) as null:  # noqa: PTH123
        for descriptor in (reading, null.fileno()):
            rights = array.array("i", [descriptor])
            one.sendmsg([b"\x0b"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            with pytest.raises(FrameError):
                Inbox().receive(other)
    os.close(reading)
    os.close(writing)


def test_a_frame_that_is_too_large(pair: tuple[socket.socket, socket.socket]) -> None:
    """Sparse or not, nobody allocates for it."""
    one, other = pair
    memory = os.memfd_create("huge", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 2**40)
    rights = array.array("i", [memory])
    one.sendmsg([b"\x0b"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    with pytest.raises(FrameError, match="larger than"):
        Inbox().receive(other)
    os.close(memory)
