"""Hosts with a kernel's network of their own, and a cable that can be pulled.

All of it lives in one namespace that the run enters before anything else (`python -m tests.chaos`
does so if it may), so that nobody outside sees an address, a device or a PostgreSQL that listens;
and it is gone with its last process, however that ended. In it the servers have an address each;
every cabled host has a namespace below, a device to it, and that is its only way to PostgreSQL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from jobctl.store.cluster import DATABASE, PORT, ROLE
from tests.network import Weather
from tests.waiting import until

#: Where the two servers of a pair listen.
ADDRESSES = ("10.77.0.1", "10.77.0.2")
#: Who may come in over cables.
VISITORS = "host all all 10.78.0.0/16 trust\n"
_INSIDE = "JOBCTL_CHAOS_NETWORK"
#: Dies with this process, however that ends.
MORTAL: Sequence[str] = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


def enter(words: Sequence[str]) -> str:
    """Starts this program again in a network namespace of its own, and does not return; or returns
    why there are no cables in this run. Empty: it is in there."""
    if os.environ.get(_INSIDE):
        _ip("link", "set", "lo", "up")
        for address in ADDRESSES:
            _ip("addr", "add", f"{address}/32", "dev", "lo")
        return ""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    for tool in ("unshare", "nsenter", "ip", "setpriv"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here"
    tried = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "try0", "type", "veth", "peer", "try1"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode == 0:
        sys.stdout.flush()
        program = ["unshare", "--net", sys.executable, *words]
        os.execvpe("unshare", program, {**os.environ, _INSIDE: "1"})  # noqa: S606 - no shell needed
    return f"no network namespace or device can be made here ({tried.stderr.strip()})"


def are_possible() -> bool:
    """Whether this process is in such a network."""
    return bool(os.environ.get(_INSIDE))


class Cable:
    """The namespace of one host, and what lies between it and PostgreSQL."""

    def __init__(self, number: int) -> None:
        self._device = f"cable{number}"
        self._here, self._there = f"10.78.{number}.1", f"10.78.{number}.2"
        self._holder = subprocess.Popen([*MORTAL, "unshare", "--net", "sleep", "infinity"])
        pid = str(self._holder.pid)
        self.inside = ("nsenter", "--target", pid, "--net", "--")
        ours = Path("/proc/self/ns/net").readlink()
        until(lambda: Path(f"/proc/{pid}/ns/net").readlink() != ours, what="a namespace")
        _ip("link", "add", self._device, "type", "veth", "peer", "eth0", "netns", pid)
        _ip("addr", "add", f"{self._here}/24", "dev", self._device)
        _ip("link", "set", self._device, "up")
        _ip("link", "set", "lo", "up", inside=self.inside)
        _ip("addr", "add", f"{self._there}/24", "dev", "eth0", inside=self.inside)
        _ip("link", "set", "eth0", "up", inside=self.inside)
        _ip("route", "add", "default", "via", self._here, inside=self.inside)

    @property
    def dsn(self) -> str:
        """Both servers, over this cable."""
        hosts = ",".join(ADDRESSES)
        return f"postgresql://{ROLE}@/{DATABASE}?host={hosts}&port={PORT},{PORT}"

    def change(self, weather: Weather) -> None:
        """Pulled; deaf, so that only the answers are dropped; without a way out; or well again."""
        _ip("link", "set", self._device, "down" if weather is Weather.BLACK_HOLE else "up")
        self._route(weather is Weather.DEAF, "blackhole", f"{self._there}/32", ())
        for address in ADDRESSES:
            refused = weather is Weather.REFUSING
            self._route(refused, "unreachable", f"{address}/32", self.inside)

    def end(self) -> None:
        """Its device goes with the namespace."""
        self._holder.kill()
        self._holder.wait()

    @staticmethod
    def _route(wanted: bool, kind: str, where: str, inside: Sequence[str]) -> None:
        there = subprocess.run(
            [*inside, "ip", "route", "show", "type", kind, where],
            capture_output=True,
            check=True,
        ).stdout
        if wanted != bool(there.strip()):
            _ip("route", "add" if wanted else "del", kind, where, inside=inside)


def _ip(*words: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, "ip", *words], check=True, capture_output=True)
