"""CPU time and memory of processes, as the kernel accounts for them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_MIB = 1024.0


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes, with that of children they have waited for."""
    total = 0
    for pid in pids:
        fields = _stat(pid)
        total += sum(int(each) for each in fields[11:15]) if fields else 0
    return total / _TICK


def descendants(pid: int) -> list[int]:
    """All processes below this one, without it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(entry.name)):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def pss_mib(pid: int) -> float:
    """Proportional memory: shared pages are split among those who share them."""
    return _rollup(pid).get("Pss", 0) / _MIB


def private_mib(pid: int) -> float:
    """Memory that is this process's alone."""
    rollup = _rollup(pid)
    return (rollup.get("Private_Dirty", 0) + rollup.get("Private_Clean", 0)) / _MIB


def title(pid: int) -> str:
    """What `ps` shows."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _rollup(pid: int) -> dict[str, int]:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return {}
    found = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.partition(":")
        if rest.strip().endswith("kB"):
            found[name] = int(rest.split()[0])
    return found
