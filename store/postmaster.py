"""The server process of a data directory, as the operating system sees it.

`postmaster.pid` is only a claim: the process may be dead, a zombie that nobody has
reaped yet, or another program that was given the same number after a reboot. What
counts is what the kernel says of that process now.

The rule: this file looks, waits and signals. It starts nothing and writes nothing.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Postmaster:
    """A live server process of one data directory."""

    pid: int
    stage: str  # "starting", "ready", "stopping"; "" before it has said so

    @classmethod
    def of(cls, data: Path) -> Postmaster | None:
        """The postmaster that runs in `data` now, or None."""
        claim = claimed(data)
        if claim is None or not _runs_in(claim.pid, data):
            return None
        return claim

    def ended(self, within: float) -> bool:
        """Wait up to `within` seconds for the process to end; True if it has."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return bool(poll.poll(within * 1000))
        finally:
            os.close(descriptor)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that has just ended is no error."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def claimed(data: Path) -> Postmaster | None:
    """What postmaster.pid says, true or not: line 1 is the process, line 8 how far it is."""
    try:
        lines = (data / "postmaster.pid").read_text(errors="replace").splitlines()
        return Postmaster(int(lines[0]), lines[7].strip() if len(lines) > 7 else "")
    except (FileNotFoundError, ValueError, IndexError):  # absent, or being written just now
        return None


def exists(pid: int) -> bool:
    """Whether the number is in use, be it by a zombie or by another program."""
    return Path(f"/proc/{pid}").exists()


def all_of(uid: int) -> Iterator[int]:
    """Every process that is called postgres and belongs to this user, of whatever server."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile
            if (process / "comm").read_text() == "postgres\n" and process.stat().st_uid == uid:
                yield int(process.name)


def _runs_in(pid: int, data: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data
    except FileNotFoundError:  # ended, or a zombie, which has no working directory any more
        return False
    except PermissionError:
        # root without CAP_SYS_PTRACE, as in most containers, may not ask where another user's
        # process is. Its command line is open to all; ours always names the data directory.
        with suppress(OSError):
            return os.fsencode(data) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return False
