"""systemd's journal, spoken to in its own words: a datagram of fields for each entry.

So that `journalctl JOBCTL_JOB_ID=1842` finds everything about a job, with levels and the time at
which it was said. An entry that is too large for a datagram travels in a sealed memory file. The
rule: nobody here waits for the journal for longer than a moment.
"""

from __future__ import annotations

import array
import errno
import fcntl
import json
import logging
import os
import select
import socket
import struct
import uuid
from collections.abc import Mapping
from typing import Any, Final, TextIO

from jobctl.supervisor.log_lines import Entry, as_logfmt

SOCKET: Final = "/run/systemd/journal/socket"
#: A journal that does not take an entry within this has lost it.
PATIENCE_SECONDS: Final = 1.0

#: As syslog counts.
_PRIORITY = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}
#: Names that others know too; every other field is JOBCTL_ and its own name.
_NAMES = {"job": "JOBCTL_JOB_ID", "type": "JOBCTL_JOB_TYPE"}
_EVENTS = uuid.UUID("6d1c5a0e-7f0e-4a39-9a4b-0c1f6b2f4a10")


def message_id(event: str) -> str:
    """The MESSAGE_ID of an event: the same for ever, on every host."""
    return uuid.uuid5(_EVENTS, event).hex


def is_stream(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether this stream ends in the journal, as systemd tells in JOURNAL_STREAM."""
    told = environ.get("JOURNAL_STREAM", "")
    try:
        stat = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return told == f"{stat.st_dev}:{stat.st_ino}"


def encode(entry: Entry) -> bytes:
    """The datagram of an entry."""
    fields: dict[str, Any] = {
        "MESSAGE": entry.sentence,
        "PRIORITY": _PRIORITY[entry.level],
        "SYSLOG_IDENTIFIER": "jobctl",
        "MESSAGE_ID": message_id(entry.event),
        "JOBCTL_EVENT": entry.event,
    }
    for name, value in entry.known.items():
        fields[_NAMES.get(name, f"JOBCTL_{name.upper()}")] = value
    return b"".join(_field(name, _text(value)) for name, value in fields.items())


def as_marked_line(entry: Entry) -> str:
    """For a standard error that ends in the journal: it takes the priority off again. One line."""
    return f"<{_PRIORITY[entry.level]}>{as_logfmt(entry)}"


def _field(name: str, value: bytes) -> bytes:
    if b"\n" not in value:
        return b"%s=%s\n" % (name.encode("ascii"), value)
    return b"%s\n%s%s\n" % (name.encode("ascii"), struct.pack("<Q", len(value)), value)


def _text(value: Any) -> bytes:
    if isinstance(value, bool | dict | list | tuple):
        value = json.dumps(value, default=str)
    return str(value).encode("utf-8", "backslashreplace")


class Journal:
    """The way there; used by one thread."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def send(self, datagram: bytes) -> None:
        """Raises OSError when the journal does not take it."""
        try:
            self._send(datagram)
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                raise
            self._send_as_file(datagram)

    def close(self) -> None:
        """Nothing is sent any more."""
        self._socket.close()

    def _send(self, data: bytes, files: tuple[int, ...] = ()) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        try:
            self._socket.sendmsg([data], rights, 0, self._path)
        except BlockingIOError:
            if not select.select([], [self._socket], [], PATIENCE_SECONDS)[1]:
                raise
            self._socket.sendmsg([data], rights, 0, self._path)

    def _send_as_file(self, data: bytes) -> None:
        file = os.memfd_create("jobctl-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            left = data
            while left:
                left = left[os.write(file, left) :]
            # The journal takes only what nobody can change any more.
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
            self._send(b"", (file,))
        finally:
            os.close(file)
