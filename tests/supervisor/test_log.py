"""The log: every shape of a line, the journal's own protocol, and nobody ever waits for it."""

from __future__ import annotations

import json
import logging
import os
import socket
import stat
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobctl.supervisor import journal
from jobctl.supervisor.events import Event
from jobctl.supervisor.log import LONGEST_QUEUE, Log
from jobctl.supervisor.log_lines import Entry, as_json, as_logfmt, as_text
from jobctl.supervisor.quota import Quota
from tests.waiting import until

AT = datetime(2026, 11, 29, 22, 54, 27, 883000, tzinfo=UTC)


def entry(**fields: object) -> Entry:
    return Entry(AT, logging.WARNING, "job_ended", "send #7 failed", fields)


def test_shapes() -> None:
    """The same fields in each; what has no value is left out."""
    one = entry(job=7, type="send", key=None, seconds=0.25, error='no "paper"\nleft', ok=True)
    assert as_text(one) == "2026-11-29T22:54:27.883Z warning send #7 failed"
    assert as_logfmt(one) == (
        "time=2026-11-29T22:54:27.883Z level=warning event=job_ended job=7 type=send seconds=0.25 "
        r'error="no \"paper\"\nleft" ok=true message="send #7 failed"'
    )
    assert json.loads(as_json(one)) == {
        "time": "2026-11-29T22:54:27.883Z", "level": "warning", "event": "job_ended", "job": 7,
        "type": "send", "seconds": 0.25, "error": 'no "paper"\nleft', "ok": True,
        "message": "send #7 failed",
    }  # fmt: skip


def test_a_stranger_cannot_begin_another_line_or_move_the_cursor() -> None:
    """Whatever is in a field or in a sentence."""
    one = Entry(AT, logging.INFO, "output", "a\x1b[2Jb", {"key": "x\ny=1\x1b[0m", "line": "z"})
    assert "\x1b" not in as_text(one) + as_logfmt(one) + as_json(one)
    assert "\n" not in as_logfmt(one) + as_json(one)


def test_an_applications_words_say_whose_they_are() -> None:
    """Printed or logged, of a slot or of the template."""
    fields = {"slot": 1, "job": 7, "logger": "shop.mail", "extra": {"invoice": 3}, "line": "sent"}
    logged = Entry(AT, logging.INFO, "logged", "sent", fields)
    assert as_text(logged).endswith("info    [slot 1 job 7] shop.mail: sent")
    assert json.loads(as_json(logged))["extra_invoice"] == 3
    printed = Entry(AT, logging.INFO, "output", "hello", {"slot": None, "job": None})
    assert as_text(printed).endswith("[app] hello")


# The journal -------------------------------------------------------------------------------------


class Receiver:
    """The journal's end, read as systemd reads it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(10)

    def receive(self) -> dict[str, str]:
        data, ancillary, _, _ = self._socket.recvmsg(2**20, socket.CMSG_SPACE(4))
        for _, _, rights in ancillary:
            (file,) = struct.unpack("i", rights[:4])
            assert stat.S_ISREG(os.fstat(file).st_mode)
            with pytest.raises(OSError, match="not permitted"):
                os.pwrite(file, b"x", 0)  # sealed, else the journal would not take it
            os.lseek(file, 0, os.SEEK_SET)
            with open(file, "rb") as text:  # noqa: PTH123 - a descriptor
                data = text.read()
        return _fields(data)

    def close(self) -> None:
        self._socket.close()


def _fields(data: bytes) -> dict[str, str]:
    found = {}
    while data:
        head, _, rest = data.partition(b"\n")
        if b"=" in head:
            name, _, value = head.partition(b"=")
            data = rest
        else:
            name, (size,) = head, struct.unpack("<Q", rest[:8])
            value, data = rest[8 : 8 + size], rest[9 + size :]
        found[name.decode()] = value.decode()
    return found


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path / "socket")
    yield made
    made.close()


def test_native_fields(receiver: Receiver) -> None:
    """journalctl JOBCTL_JOB_ID=7 finds it; its priority is the event's; lines stay lines."""
    log = Log("journald", journal_socket=receiver.path)
    log.say(
        Event.JOB_ENDED, job=7, type="send", queue="mail", attempt=2, outcome="failed",
        error="no paper\nand no ink=1", state="retrying", key=None,
    )  # fmt: skip
    found = receiver.receive()
    log.close()
    assert found == {
        "MESSAGE": "send #7 attempt 2 failed: no paper\nand no ink=1; it is retrying now",
        "PRIORITY": "4", "SYSLOG_IDENTIFIER": "jobctl", "JOBCTL_EVENT": "job_ended",
        "MESSAGE_ID": journal.message_id("job_ended"), "JOBCTL_JOB_ID": "7",
        "JOBCTL_JOB_TYPE": "send", "JOBCTL_QUEUE": "mail", "JOBCTL_ATTEMPT": "2",
        "JOBCTL_OUTCOME": "failed", "JOBCTL_ERROR": "no paper\nand no ink=1",
        "JOBCTL_STATE": "retrying",
    }  # fmt: skip


def test_one_that_is_too_large_for_a_datagram_comes_in_a_sealed_file(receiver: Receiver) -> None:
    """Whole."""
    log = Log("journald", journal_socket=receiver.path)
    log.say(Event.JOB_ENDED, job=7, type="t", attempt=1, outcome="o", state="s", error="x" * 2**20)
    assert len(receiver.receive()["JOBCTL_ERROR"]) == 2**20
    log.close()


def test_auto_is_journald_exactly_where_standard_error_ends_in_the_journal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As JOURNAL_STREAM says; not where somebody has redirected it since."""
    with (tmp_path / "err").open("w") as stream, (tmp_path / "other").open("w") as other:
        found = os.fstat(stream.fileno())
        environ = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert journal.is_stream(stream, environ)
        assert not journal.is_stream(other, environ)
        assert not journal.is_stream(stream, {})
        monkeypatch.delenv("JOURNAL_STREAM", raising=False)
        log = Log("auto", stream)
        log.say(Event.READY)
        log.close()
    assert json.loads((tmp_path / "err").read_text())["event"] == "ready"


def test_without_a_journal_lines_carry_their_priority(tmp_path: Path) -> None:
    """It is being restarted, or there is none: standard error is left, which it reads too."""
    with (tmp_path / "err").open("w") as stream:
        log = Log("journald", stream, journal_socket=str(tmp_path / "nobody"))
        log.say(Event.LEASE_OVER, busy=2)
        log.close()
    line = (tmp_path / "err").read_text()
    assert line.startswith("<3>time=")
    assert "event=lease_over" in line


def test_a_journal_that_reads_nothing_stops_nobody(receiver: Receiver) -> None:
    """Entries wait, then are lost and counted; whoever says them does not wait."""
    with open(os.devnull, "w") as stream:  # noqa: PTH123 - not a file of ours
        log = Log("journald", stream, journal_socket=receiver.path)
        for _ in range(LONGEST_QUEUE + 2000):
            log.say(Event.READY)
        assert log.dropped > 0
        receiver.close()  # it refuses now, and what waits goes to the stream
        until(lambda: log._waiting.empty(), within=60, what="the writer to be done")
        log.close()


def test_what_was_lost_is_said_when_it_goes_again(tmp_path: Path) -> None:
    """By a pipe whose reader was away for a while."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb") as reader:
        log = Log("json", stream)
        for _ in range(LONGEST_QUEUE * 2):
            log.say(Event.READY)
        assert log.dropped > 0
        told = next(
            found for line in reader if (found := json.loads(line))["event"] == "lines_dropped"
        )
        assert told["count"] > 0
        log.close()


def test_a_field_that_cannot_be_shown_ends_no_supervisor(tmp_path: Path) -> None:
    """Nor the thread that writes: the next line is written."""

    class Strange:
        def __str__(self) -> str:
            raise RuntimeError("not today")

    with (tmp_path / "err").open("w") as stream:
        log = Log("json", stream)
        log.say(Event.DATABASE_BACK, link=Strange())
        log.say(Event.READY, odd=Strange())
        log.say(Event.UNDRAINED)
        until(lambda: "undrained" in (tmp_path / "err").read_text(), what="the line behind")
        log.close()


def test_levels(tmp_path: Path) -> None:
    """Ours are filtered; an application decides for itself."""
    with (tmp_path / "err").open("w") as stream:
        log = Log("json", stream, level=logging.WARNING)
        log.say(Event.READY)
        log.say(Event.LEASE_OVER, busy=1)
        log.pass_on(Event.LOGGED, logging.DEBUG, line="details", logger="app")
        log.close()
    lines = [json.loads(line) for line in (tmp_path / "err").read_text().splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("lease_over", "error"),
        ("logged", "debug"),
    ]


def test_a_quota() -> None:
    """A burst, then a rate; what it refuses it counts."""
    now = [0.0]
    quota = Quota(10, 20, lambda: now[0])
    assert [quota.take() for _ in range(25)] == [True] * 20 + [False] * 5
    now[0] = 1.0
    assert sum(quota.take() for _ in range(25)) == 10
    now[0] = 1000.0
    assert sum(quota.take() for _ in range(25)) == 20
    assert (quota.take_refused(), quota.take_refused()) == (5 + 15 + 5, 0)
