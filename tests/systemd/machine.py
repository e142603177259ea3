"""A machine that boots a real systemd, for as long as the tests need one.

Process 1 of namespaces of its own, over the host's files: what it writes goes into memory, its
network is empty, its processes and control groups are gone when it is. Only root can have one, and
not in every container; `Impossible` says why not. jobctl is in it where the unit looks for it:
/opt/jobctl/bin/jobctl runs this working copy.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import until

HERE = Path(__file__).parents[2]
GROUPS = Path("/sys/fs/cgroup")
#: What systemd needs of cgroup v1, and what limits of memory and processes need.
V1 = ("systemd", "memory", "pids", "cpu", "cpuacct")
PROGRAMS = ("unshare", "nsenter", "setpriv", "mount", "pivot_root", "ip", "hostname")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000


class Impossible(Exception):
    """This host does not let us; a sentence."""


class Machine:
    """One that runs. Paths of the host that are seen inside: `shared` at /srv/test."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.shared = folder / "shared"
        self._folder = folder
        self._pid1 = 0
        self._groups = list(_groups(name))
        self._unshare: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Returns when systemd is up. Raises Impossible."""
        _require()
        disk = self._folder / "disk"
        disk.mkdir()
        self.shared.mkdir(mode=0o755)
        self._folder.chmod(0o755)
        controllers = " ".join(group.parent.name for group in self._groups[1:])
        console = (self._folder / "console").open("wb")
        try:
            for group in self._groups:
                group.mkdir()
            self._unshare = subprocess.Popen(
                [
                    "unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc",
                    "--net", "--cgroup", "--propagation", "private",
                    str(Path(__file__).with_name("boot.sh")), self.name, str(disk), controllers,
                    " ".join(f"{here}:{there}" for here, there in self._seen()),
                ],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, preexec_fn=self._enter,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise Impossible(f"control groups cannot be made here: {error}") from error
        finally:
            console.close()
        try:
            self._pid1 = until(self._child, within=20, what="a process 1")
            until(self._is_up, within=60, what="systemd to be up")
        except AssertionError as error:
            said = (self._folder / "console").read_text(errors="replace").strip()
            raise Impossible(f"it does not boot here: {error}\n{said[-2000:]}") from error
        self._install()

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a program inside, as root."""
        inside = [
            "nsenter", f"--target={self._pid1}", "--mount", "--uts", "--ipc", "--net", "--pid",
            "--cgroup", "--root", "--wd", "env", "-i", f"PATH={PATH}", "LANG=C.UTF-8",
            "SYSTEMD_PAGER=", *command,
        ]  # fmt: skip
        ran = subprocess.run(
            inside, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
        )
        if check and ran.returncode != 0:
            raise AssertionError(
                f"{shlex.join(command)}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
            )
        return ran

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file inside."""
        quoted = shlex.quote(path)
        script = f"mkdir -p $(dirname {quoted}); printf %s {shlex.quote(text)} >{quoted}; "
        self.run("sh", "-c", f"{script} chmod {mode:o} {quoted}")

    @property
    def door(self) -> tuple[str, ...]:
        """Put before a command of the host's, it runs in the network of this machine."""
        return ("nsenter", f"--target={self._pid1}", "--net", "--")

    @contextmanager
    def network(self) -> Iterator[ThreadPoolExecutor]:
        """A thread that is in the network of this machine: what it connects to, and listens at, is
        there."""

        def enter() -> None:
            libc = ctypes.CDLL(None, use_errno=True)  # os.setns is of Python 3.12
            with Path(f"/proc/{self._pid1}/ns/net").open() as there:
                if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")

        with ThreadPoolExecutor(max_workers=1, initializer=enter) as inside:
            yield inside

    @property
    def holds_memory(self) -> bool:
        """Whether a limit of memory really limits."""
        if self._groups[1:]:
            return any(group.parent.name == "memory" for group in self._groups)
        return "memory" in (GROUPS / "cgroup.controllers").read_text().split()

    def end(self) -> None:
        """Whatever runs in it, it is gone."""
        if self._pid1:
            with suppress(ProcessLookupError):
                os.kill(self._pid1, signal.SIGKILL)
        if self._unshare is not None:
            self._unshare.kill()
            self._unshare.wait()
        for group in self._groups:
            until(lambda group=group: _removed(group), within=20, what=f"{group} to be empty")  # type: ignore[misc]

    def _enter(self) -> None:
        """In the child, before unshare: dies with us, and is in the machine's control groups."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for group in self._groups:
            (group / "cgroup.procs").write_text("0")

    def _child(self) -> int:
        assert self._unshare is not None
        if self._unshare.poll() is not None:
            raise AssertionError(f"unshare has ended with {self._unshare.returncode}")
        pid = self._unshare.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def _is_up(self) -> bool:
        assert self._unshare is not None
        if self._unshare.poll() is not None:
            raise AssertionError(f"process 1 has ended with {self._unshare.returncode}")
        said = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return said in ("running", "degraded")

    def _seen(self) -> Iterator[tuple[str, str]]:
        yield str(HERE), "/opt/jobctl/code"
        yield sysconfig.get_path("purelib"), "/opt/jobctl/site"
        yield sys.base_prefix, "/opt/jobctl/python"
        yield str(self.shared), "/srv/test"

    def _install(self) -> None:
        """/opt/jobctl/bin/, for a user who may not enter the folders of whoever runs this."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        python = (
            "#!/bin/sh\n"
            "export LD_LIBRARY_PATH=/opt/jobctl/python/lib PYTHONDONTWRITEBYTECODE=1\n"
            "export PYTHONPATH=/opt/jobctl/code/src:/opt/jobctl/site:/srv/test/app\n"
            f'exec /opt/jobctl/python/bin/python{version} "$@"\n'
        )
        self.write("/opt/jobctl/bin/python", python, 0o755)
        jobctl = '#!/bin/sh\nexec /opt/jobctl/bin/python -m jobctl "$@"\n'
        self.write("/opt/jobctl/bin/jobctl", jobctl, 0o755)


@contextmanager
def machine(name: str = "jobctl-test") -> Iterator[Machine]:
    """Boots one, and ends it. Raises Impossible."""
    folder = Path(tempfile.mkdtemp(prefix="jobctl-machine-"))
    booted = Machine(f"{name}-{os.getpid()}", folder)
    try:
        booted.boot()
        yield booted
    finally:
        booted.end()
        shutil.rmtree(folder)


def _require() -> None:
    if os.geteuid() != 0:
        raise Impossible("only root can boot a systemd of its own")
    if not Path("/lib/systemd/systemd").exists():
        raise Impossible("no systemd is installed here: apt-get install systemd")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise Impossible(f"these programs are not here: {', '.join(missing)}")


def _groups(name: str) -> Iterator[Path]:
    """The machine's own control groups: of v2, then one of each controller of v1 that there is."""
    unified = GROUPS / "unified"
    if not unified.is_dir():
        yield GROUPS / name
        return
    yield unified / name
    for controller in V1:
        if (GROUPS / controller / "cgroup.procs").exists():
            yield GROUPS / controller / name


def _removed(group: Path) -> bool:
    """Whether it is gone, with all below; processes that were killed may hold it for a moment."""
    if not group.exists():
        return True
    with suppress(OSError):
        for folder, _, _ in os.walk(group, topdown=False):
            Path(folder).rmdir()
    return not group.exists()
