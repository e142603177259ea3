"""Who this supervisor is: one life of one process on one machine.

The session's id is random and made here, never by the database: a sequence, and even an attempt
number, can be given out twice after a crash or a fail-over. The rest says which process that was,
so that a later supervisor of the same host can prove that it is dead.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

#: What of a DSN says which database it is.
_DATABASE = ("service", "host", "hostaddr", "port", "dbname")


def new_session_id() -> int:
    """A random positive 63-bit number."""
    return secrets.randbits(63) or 1


@dataclass(frozen=True)
class Identity:
    """The process behind a session. None where the machine does not say."""

    host: str
    machine_id: str | None
    boot_id: str | None
    pid_namespace: str | None
    pid: int
    pid_start: int | None  # clock ticks since boot
    version: str

    @classmethod
    def of_this_process(cls, host: str) -> Identity:
        """Read from /proc and /etc/machine-id."""
        return cls(
            host=host,
            machine_id=_read("/etc/machine-id"),
            boot_id=_read("/proc/sys/kernel/random/boot_id"),
            pid_namespace=_link("/proc/self/ns/pid"),
            pid=os.getpid(),
            pid_start=start_of(os.getpid()),
            version=_version(),
        )


def kin_of(host: str, schema: str, where: str) -> str:
    """What all lives of one supervisor have in common, and no other supervisor of this user.

    `where` is the DSN: by the same name on the same host somebody may work for another database.
    """
    found = conninfo_to_dict(where)
    parts = [host, schema, *(str(found.get(word, "")) for word in _DATABASE)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def proven_dead(
    mine: Identity,
    machine_id: str | None,
    boot_id: str | None,
    pid_namespace: str | None,
    pid: int,
    pid_start: int | None,
) -> bool:
    """Whether the process of an earlier session of the same host's name cannot be alive.

    Two containers may share a host's name, and two machines an image with its machine id, so:
    the same machine in another boot; or the same boot, the same namespace of process numbers, and
    no such process, or one that started at another time. Anything else proves nothing, and that
    session's lease decides.
    """
    if None in (machine_id, boot_id) or machine_id != mine.machine_id:
        return False
    if boot_id != mine.boot_id:
        return True
    if pid_namespace is None or pid_namespace != mine.pid_namespace or pid_start is None:
        return False
    return start_of(pid) != pid_start


def start_of(pid: int) -> int | None:
    """When this process was started, in clock ticks since boot; None if there is none."""
    stat = _read(f"/proc/{pid}/stat")
    if stat is None:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):  # dead, and only not yet waited for
        return None
    return int(fields[19])


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _link(path: str) -> str | None:
    try:
        return str(Path(path).readlink())
    except OSError:
        return None


def _version() -> str:
    try:
        return version("pgjobctl")
    except PackageNotFoundError:
        return "unknown"
