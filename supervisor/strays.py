"""Processes that a slot's job left behind, and children that are nobody's.

The supervisor adopts every orphan below it (it is a child subreaper), so a process that escaped
its slot's group and session becomes visible here as a child that is neither slot nor template.
Whose it was is told by its session, by the marker in its environment, where it was forked without
exec by the slot's page that it still maps, or by its control group. A child of ours stays a zombie
until we reap it, so its number cannot have been given to somebody else meanwhile; signals still go
by pidfd.

Because orphans are reaped here, nothing else in this process may wait for children by number: no
`subprocess` beside a running fleet.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Collection, Container, Iterator
from pathlib import Path
from typing import NamedTuple

from jobctl.supervisor.groups import IN_CGROUP, Group
from jobctl.workerproc import launch

_PROC = Path("/proc")


def children() -> set[int]:
    """The pids of all children of this process, the dead ones included."""
    found: set[int] = set()
    for task in (_PROC / "self" / "task").iterdir():
        try:
            found.update(map(int, (task / "children").read_text().split()))
        except FileNotFoundError:  # a kernel without that list, or a thread that has just ended
            found.update(_children_by_scan())
    return found


class Hunt:
    """Kills what one slot left behind, round by round.

    What a killed process had started is adopted only once that process is dead, so the caller
    comes back for another round until there is nothing left.
    """

    def __init__(self, mark: str, session: int, group: Group | None) -> None:
        self._mark = mark
        self._session = session
        self._group = group
        self._caught: dict[int, int] = {}  # pid -> pidfd: a dying process has no marks any more

    def round(self, spared: Collection[int]) -> int:
        """How many there still were. `spared` are the pids of slots and templates."""
        unnamed = 0
        if self._group is not None and self._group.populated():
            self._group.kill()
            unnamed = 1  # or more; some may be caught below as well
        for pid in children() - set(spared) - self._caught.keys():
            if _belongs(pid, self._mark, self._session):
                with contextlib.suppress(OSError):  # no descriptor left: again next round
                    self._caught[pid] = os.pidfd_open(pid)
        for pid, pidfd in list(self._caught.items()):
            # EPERM: it became another user. It is counted, and the caller gives up at some point.
            with contextlib.suppress(PermissionError, ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            if _reap(os.P_PIDFD, pidfd):
                os.close(self._caught.pop(pid))
        return len(self._caught) + unnamed

    def give_up(self) -> list[int]:
        """The pids of those that would not die, if any."""
        left = list(self._caught)
        while self._caught:
            os.close(self._caught.popitem()[1])
        return left


def reap_unknown(known: Collection[int]) -> int:
    """Reaps dead children that are neither slots nor templates. How many.

    Peeks first: a slot's status is read once, by whoever watches its pidfd.
    """
    reaped = 0
    with contextlib.suppress(ChildProcessError):
        while True:
            peek = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if peek is None:
                return reaped
            if peek.si_pid in known:
                break
            reaped += _reap(os.P_PID, peek.si_pid)
        for pid in children() - set(known):
            reaped += _reap(os.P_PID, pid)
    return reaped


def kill_everything(spared: Collection[int]) -> int:
    """SIGKILL for every child that is left but the spared, and reaps the dead: for the very end.

    How many there still are; children of the killed are adopted and come in the next round.
    """
    left = 0
    for pid in children() - set(spared):
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                left += not _reap(os.P_PIDFD, pidfd)
            finally:
                os.close(pidfd)
    return left


def kill_outliving(known: Collection[int], lives: Container[int]) -> None:
    """SIGKILL for orphans whose slot is gone: adopted when nobody hunted for them any more."""
    for pid in children() - set(known):
        mark = mark_of(pid)
        if mark is None or mark.supervisor != os.getpid() or mark.life in lives:
            continue
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)


def kill_abandoned(kin: str) -> list[int]:
    """SIGKILL for what jobs of dead lives of this supervisor left on this machine; their pids.

    For the start. Those of another supervisor are that one's, which may be about to start as well.
    A supervisor adopts whatever is orphaned below it, so a marked process of which the supervisor
    is no ancestor has lost it. Only this user's, and only where pids mean the same. Asked twice,
    because a process may change its parent while its ancestors are read.
    """
    killed = []
    for pid in _all_pids():
        with contextlib.suppress(OSError):  # gone meanwhile, or not ours to look at
            if (_PROC / str(pid)).stat().st_uid != os.geteuid():
                continue
            mark = mark_of(pid)
            if mark is None or mark.kin != kin:
                continue
            pidfd = os.pidfd_open(pid)
            try:
                if _is_abandoned(pid) and _is_abandoned(pid):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    killed.append(pid)
            finally:
                os.close(pidfd)
    return killed


def _is_abandoned(pid: int) -> bool:
    """Raises OSError when that cannot be told."""
    mark = mark_of(pid)
    if mark is None or pid == os.getpid() or _pid_space(pid) != _pid_space(os.getpid()):
        return False
    # The supervisor itself maps the pages of its slots.
    return mark.supervisor != pid and mark.supervisor not in _ancestors(pid)


def is_child(pid: int) -> bool:
    """Whether a process is a child of this one, dead or alive."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def program_instead(pid: int, mark: str) -> str | None:
    """What a slot's process executes now, if that is not the slot any more; None if it is."""
    process = _PROC / str(pid)
    try:
        if f"/memfd:{launch.page_name(mark)} ".encode() in (process / "maps").read_bytes():
            return None
        return str((process / "exe").readlink())[:200]
    except OSError:  # gone meanwhile, or another user's by set-uid
        return None


class Mark(NamedTuple):
    """What `launch.MARKER` says."""

    supervisor: int
    slot: int
    life: int
    kin: str


_MARK = rb"(?P<supervisor>\d+):(?P<slot>\d+):(?P<life>\d+):(?P<kin>[0-9a-f]+)"
_IN_ENVIRONMENT = re.compile(rb"(?:^|\0)%b=%b\0" % (launch.MARKER.encode(), _MARK))
_IN_MAPS = re.compile(rb"/memfd:%b%b " % (launch.page_name("").encode(), _MARK))


def mark_of(pid: int) -> Mark | None:
    """Which slot a process comes from; None: from none, or it is gone, or may not be read."""
    process = _PROC / str(pid)
    try:
        found = (
            _IN_ENVIRONMENT.search((process / "environ").read_bytes())
            or _IN_MAPS.search((process / "maps").read_bytes())
            or IN_CGROUP.search((process / "cgroup").read_bytes())
        )
    except OSError:
        return None
    if found is None:
        return None
    supervisor, slot, life = (int(found[name]) for name in ("supervisor", "slot", "life"))
    return Mark(supervisor, slot, life, found["kin"].decode())


def _belongs(pid: int, mark: str, session: int) -> bool:
    """The cheap question first; the other reads the process's memory map."""
    try:
        if int(_stat(pid)[3]) == session:
            return True
    except (OSError, IndexError, ValueError):
        return False
    found = mark_of(pid)
    return found is not None and launch.marker(*found) == mark


def _ancestors(pid: int) -> set[int]:
    """All of them. Raises OSError if one vanishes meanwhile: then nobody can say."""
    found: set[int] = set()
    while (pid := int(_stat(pid)[1])) > 0 and pid not in found:
        found.add(pid)
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on: state, parent, group, session, ..."""
    text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()


def _pid_space(pid: int) -> str:
    return str((_PROC / str(pid) / "ns" / "pid").readlink())


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _reap(by: int, which: int) -> bool:
    """Whether it is gone: reaped now, or by somebody else before."""
    try:
        return os.waitid(by, which, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def _children_by_scan() -> Iterator[int]:
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            if int(_stat(pid)[1]) == os.getpid():
                yield pid
