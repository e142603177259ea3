"""Control groups (version 2): each slot's process in one of its own, out of which nothing escapes.

A process can leave its parent, its session and its environment, but not its control group. Where
the supervisor may make groups below the one that it was started in (systemd: `Delegate=`), a kill
of a slot is a kill of its group, and with the memory controller the kernel holds a job to its
ceiling and says whom it has killed. All of it comes on top: a slot that has no group, because there
are none here or because something failed, is killed as it is anywhere else.

    OWN/jobctl-KIN-PID/     of one supervisor, which holds a lock on the folder as long as it lives
        supervisor/         itself and its template, if controllers are used: then a group has
                            either processes or groups
        slot-3.17/          its 17th process, in slot 3

A group is of one process and not of a seat: a slot that does not die must not share one with what
took its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

#: A supervisor's groups, below the group that it was started in.
_NAME = "jobctl-{kin}-{pid}"
#: In /proc/PID/cgroup: which slot's process somebody belongs to.
IN_CGROUP = re.compile(
    rb"/jobctl-(?P<kin>[0-9a-f]+)-(?P<supervisor>\d+)/slot-(?P<slot>\d+)\.(?P<life>\d+)(?:/|\n)"
)
#: What the groups of dead supervisors still hold has this long to die when the next one starts.
_SWEEP_SECONDS = 1.0
#: The kernel's wall stands this much above a ceiling: the supervisor, which looks at the process
#: four times a second, kills with a stack to show for it; the wall is for what is quicker.
_WALL = 1.25
_ROUNDS = 20
#: Where the supervisor itself is, if it had to leave the group that it was started in.
_INSIDE = "supervisor"


@dataclass(frozen=True, slots=True)
class Findings:
    """What there is on this host; for the log, `jobctl status` and `jobctl doctor`."""

    delegated: bool
    memory: bool  # the memory controller is in use
    sentence: str


class Group:
    """The group of one slot's process."""

    def __init__(self, path: Path, *, memory: bool) -> None:
        """Raises OSError if it cannot be made."""
        self.path = path
        self._memory = memory
        self._ceiling = 0
        path.mkdir()
        if memory:
            # Not one process of a job, but all of it: half a job is of no use to anybody.
            _written(path / "memory.oom.group", "1")

    @property
    def members(self) -> str:
        """The file through which a process joins."""
        return str(self.path / "cgroup.procs")

    def kill(self) -> None:
        """SIGKILL for everything in it, whatever forks meanwhile."""
        if self.populated():
            _kill(self.path)

    def populated(self) -> bool:
        """Whether a living process is in it."""
        return _populated(self.path)

    def remove(self) -> bool:
        """Whether it is gone."""
        return _remove(self.path)

    def hold_to(self, ceiling: int) -> None:
        """The kernel lets it have this much memory and a little more, and no swap; 0: any."""
        if not self._memory or ceiling == self._ceiling:
            return
        self._ceiling = ceiling
        _written(self.path / "memory.swap.max", "0" if ceiling else "max")
        _written(self.path / "memory.max", str(round(ceiling * _WALL)) if ceiling else "max")

    def starved(self) -> bool | None:
        """Whether the kernel's out-of-memory killer killed in it; None: it does not say."""
        if not self._memory:
            return None
        found = re.search(r"^oom_kill (\d+)$", _read(self.path / "memory.events"), re.MULTILINE)
        return found is not None and int(found[1]) > 0


class Groups:
    """All groups of one supervisor. Made once, at its start."""

    def __init__(self, kin: str, own: Path | None = None) -> None:
        """`own` is the group that this process is in, if it is not the one that /proc says."""
        self.killed = 0  # processes that were left in the groups of earlier lives
        self._retired: list[Group] = []  # empty soon, and removed then
        self._lock = -1
        self._base: Path | None = None
        self._own = own_group() if own is None else own
        self.findings = self._open(kin)

    def make(self, number: int, life: int) -> Group | None:
        """For one slot's process; None if there are none."""
        if self._base is None:
            return None
        try:
            return Group(self._base / f"slot-{number}.{life}", memory=self.findings.memory)
        except OSError:  # too many, say: the slot is killed by other means
            return None

    def retire(self, group: Group) -> None:
        """Its process is dead; it is removed as soon as it is empty."""
        if not group.remove():
            self._retired.append(group)

    def tidy(self) -> None:
        """Another try for what was not empty. What is left in there is dying or to die."""
        for group in self._retired:
            group.kill()
        self._retired = [group for group in self._retired if not group.remove()]

    def close(self) -> bool:
        """Gives everything back. Whether all is gone; what is not, is left to the next life."""
        if self._base is None:
            return True
        self.tidy()
        for slot in self._base.glob("slot-*"):
            _kill(slot)
            _remove(slot)
        with contextlib.suppress(OSError):
            if self.findings.memory and self._own is not None:
                give_back(self._own, self._base, "memory")
            self._base.rmdir()
        if self._base.exists():
            return False
        os.close(self._lock)
        self._lock, self._base = -1, None
        return True

    def _open(self, kin: str) -> Findings:
        if self._own is None:
            return Findings(False, False, "there is none of version 2 to make others in")
        try:
            self.killed = _sweep(self._own, kin)
            base = self._own / _NAME.format(kin=kin, pid=os.getpid())
            base.mkdir(exist_ok=True)  # of a dead process that had the same number
            self._lock = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return Findings(
                False,
                False,
                f"not delegated: no group can be made in {self._own} ({error.strerror}); slots are "
                "killed by group, session and mark. With systemd, set Delegate=memory pids",
            )
        self._base = base
        without = put_to_use(self._own, base, "memory")
        words = "the memory controller holds jobs to their ceilings"
        if without:
            words = f"without the memory controller ({without}): ceilings are watched only"
        sentence = f"delegated: each slot has one of its own in {base}; {words}"
        return Findings(True, not without, sentence)


def put_to_use(own: Path, base: Path, controller: str) -> str:
    """A controller for the groups in `base`, which is in `own`. Why not; empty: it is in use.

    This process leaves `own` for it, because a group that hands a controller on has no processes.
    """
    if controller not in _read(own / "cgroup.controllers").split():
        return "it is not there"
    try:
        (base / _INSIDE).mkdir(exist_ok=True)
        _write(base / _INSIDE / "cgroup.procs", str(os.getpid()))
        _write(own / "cgroup.subtree_control", f"+{controller}")
        _write(base / "cgroup.subtree_control", f"+{controller}")
    except OSError as error:
        others = set(_read(own / "cgroup.procs").split()) - {str(os.getpid())}
        with contextlib.suppress(OSError):
            give_back(own, base, controller)
        return "other processes are in the same group" if others else str(error.strerror)
    return ""


def give_back(own: Path, base: Path, controller: str) -> None:
    """The opposite. Raises OSError where another supervisor still uses it."""
    for folder in (base, own):
        _write(folder / "cgroup.subtree_control", f"-{controller}")
    _write(own / "cgroup.procs", str(os.getpid()))
    (base / _INSIDE).rmdir()


def own_group() -> Path | None:
    """The folder of the control group that this process is in; None if there is none of its own.

    The root of all of them is nobody's own.
    """
    mounted = re.search(
        r"^\S+ \S+ \S+ (/\S*) (/\S*) .* - cgroup2 ", _read(Path("/proc/self/mountinfo")), re.M
    )
    path = re.search(r"^0::(/.*)$", _read(Path("/proc/self/cgroup")), re.M)
    if mounted is None or path is None:
        return None
    root, where = mounted[1], path[1]
    if not f"{where}/".startswith(root.rstrip("/") + "/"):
        return None  # it is not below what is mounted here
    own = Path(mounted[2]) / where[len(root.rstrip("/")) :].lstrip("/")
    return own if (own / "cgroup.type").exists() else None


def _sweep(own: Path, kin: str) -> int:
    """Empties and removes the groups of dead lives of this supervisor. How many were in there."""
    killed = 0
    until = monotonic() + _SWEEP_SECONDS
    for base in own.glob(_NAME.format(kin=kin, pid="*")):
        with _locked(base) as dead:
            if not dead:
                continue
            left = list(base.glob("slot-*"))
            for slot in left:
                killed += sum(1 for _ in _pids(slot))
                _kill(slot)
            while (left := [slot for slot in left if not _remove(slot)]) and monotonic() < until:
                sleep(0.01)  # at the start, before there is anything to keep waiting
            with contextlib.suppress(OSError):
                inside = base / _INSIDE
                if inside.exists():
                    inside.rmdir()  # not if something is there: its database may outlive it
                base.rmdir()
    return killed


@contextlib.contextmanager
def _locked(base: Path) -> Iterator[bool]:
    """Whether nobody holds the lock of this folder, that is, whether its supervisor is dead."""
    try:
        descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # gone
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def _kill(group: Path) -> None:
    """SIGKILL for all that is in it, at once by the kernel if it can."""
    if not _written(group / "cgroup.kill", "1") and group.exists():
        kill_one_by_one(group)


def kill_one_by_one(group: Path) -> None:
    """For kernels before 5.14: frozen, so that nothing is forked meanwhile; then by pidfd."""
    _written(group / "cgroup.freeze", "1")
    for _ in range(_ROUNDS):
        struck = False
        for pid in _pids(group):
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(pid)
                try:
                    if pid in set(_pids(group)):  # it is still that process
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                        struck = True
                finally:
                    os.close(pidfd)
        if not struck:
            return


def _pids(group: Path) -> Iterator[int]:
    """The living in this group and in those that a job has made in it."""
    for folder in (group, *(path for path in group.rglob("*") if path.is_dir())):
        for word in _read(folder / "cgroup.procs").split():
            if word != "0":  # of another pid namespace
                yield int(word)


def _populated(group: Path) -> bool:
    return "populated 1" in _read(group / "cgroup.events")


def _remove(group: Path) -> bool:
    """Whether it is gone, with the groups that a job has made in it."""
    if _populated(group):
        return False
    with contextlib.suppress(OSError):
        group.rmdir()
        return True
    for folder in (*sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True), group):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return not group.exists()


def _write(path: Path, text: str) -> None:
    """In one piece, never creating a file. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _written(path: Path, text: str) -> bool:
    """Whether that was possible."""
    try:
        _write(path, text)
    except OSError:
        return False
    return True


def _read(path: Path) -> str:
    """Empty if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
