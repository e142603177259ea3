"""The health of this host: its clock, its unit, and whether its slots fit into it.

Only what can be seen from here and by this user; of a host that runs no supervisor there is little
to say. Nothing is changed, and nothing that cannot be read is a failure.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobctl.cli.endings import Failure
from jobctl.cli.here import peers_here
from jobctl.store import reading
from jobctl.store.finding import Finding, finding
from jobctl.store.reading import Connection
from jobctl.store.spoken import coarse
from jobctl.supervisor.control import ControlError
from jobctl.supervisor.settings_sources import Loaded

#: A clock that is off by more confuses people who compare logs; it decides nothing.
MOST_SKEW = 2.0
#: A service that systemd had to start again so often does not run well.
MANY_RESTARTS = 3
#: Open files: of the supervisor itself, and for each slot (socket, pipes, page, pidfd).
FILES, FILES_A_SLOT = 64, 8
_MIB = 2**20

_UNIT_MUST: Mapping[str, tuple[str, str]] = {
    "KillMode": ("mixed", "a stop would signal the jobs, a crash leave their processes behind"),
    "OOMPolicy": ("continue", "one greedy job would end the supervisor and all others with it"),
}
_UNIT_ASKED = (
    "Id,Type,LoadState,ActiveState,SubState,Result,NRestarts,RestartPreventExitStatus,"
    + (",".join(_UNIT_MUST))
)


@dataclass(frozen=True)
class Local:
    """A supervisor on this host, as seen from outside."""

    pid: int
    slots: list[int]  # their pids
    host: str = ""
    control_groups: str | None = None  # what it has found of them


def examine(loaded: Loaded, connection: Connection) -> list[Finding]:
    """Everything that is looked at. Raises what psycopg raises."""
    found = [clock(connection), *units(_systemctl())]
    running = _running(loaded)
    found.append(files(running, loaded.settings.slots))
    ceiling = reading.ceilings(connection)
    for one in running:
        # Without control groups a kill goes other ways: worth knowing, and nothing to mend.
        groups = f"{one.host}: {one.control_groups or 'not told'}"
        found.append(finding("control groups", True, groups, ""))
        found.append(memory(one, ceiling, loaded.settings.max_rss_per_slot))
    return found


def clock(connection: Connection) -> Finding:
    """How far the host's wall clock is from the database's."""
    before = time.time()  # the host's wall clock is what is judged here
    there = reading.clock(connection).timestamp()
    after = time.time()
    skew = there - (before + after) / 2
    off = max(0.0, abs(skew) - (after - before) / 2)
    which = "behind" if skew > 0 else "ahead of"
    return finding(
        "clock",
        off <= MOST_SKEW,
        f"this host's clock agrees with the database's to {coarse(max(0.001, off))}"
        if off <= MOST_SKEW
        else f"this host's clock is {coarse(off)} {which} the database's",
        "leases and crons do not care, people who compare logs do: run an NTP client on both",
        note=True,
    )


def units(told: str) -> list[Finding]:
    """What `systemctl show` has said of the units, one block each."""
    found: list[Finding] = []
    for block in told.strip().split("\n\n"):
        unit = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if unit.get("LoadState") == "loaded" and unit.get("Type") != "oneshot":
            found += _unit(unit)
    return found


def _unit(unit: Mapping[str, str]) -> list[Finding]:
    name = unit["Id"]
    found = [
        finding("unit", False, f"{name} has {key}={unit[key]}", f"{why}: {key}={want}")
        for key, (want, why) in _UNIT_MUST.items()
        if unit.get(key, want) != want
    ]
    if unit.get("ActiveState") not in ("active", "reloading"):
        fact = f"{name} is {unit.get('ActiveState')} ({unit.get('Result')})"
        found.append(finding("unit", False, fact, f"journalctl -u {name} -n 50 says why"))
    restarts = int(unit.get("NRestarts") or 0)
    if restarts >= MANY_RESTARTS:
        fact = f"systemd had to start {name} again {restarts} times"
        found.append(
            finding("unit", False, fact, f"journalctl -u {name} says why it ended", note=True)
        )
    if "78" not in unit.get("RestartPreventExitStatus", "78"):
        fact = f"{name} is started again also when its configuration is wrong"
        found.append(finding("unit", False, fact, "RestartPreventExitStatus=78", note=True))
    return found or [finding("unit", True, f"{name} is {unit.get('ActiveState')}", "")]


def files(running: list[Local], slots: int) -> Finding:
    """The limit of open files of the supervisors here, or of one that this user would start."""
    limits = [(_limit_of(one.pid), len(one.slots)) for one in running]
    limits = limits or [(resource.getrlimit(resource.RLIMIT_NOFILE)[0], slots)]
    limit, slots = min(limits, key=lambda pair: pair[0] - FILES_A_SLOT * pair[1])
    need = FILES + FILES_A_SLOT * slots
    return finding(
        "files",
        limit >= need,
        f"{limit} open files are allowed, {slots} slots need {need}",
        f"LimitNOFILE={max(65536, need)} in the unit, or ulimit -n",
    )


def memory(one: Local, ceiling: Mapping[str, Any], max_rss: int | None) -> Finding:
    """Whether all slots fit, each as large as the largest has been, or may become."""
    room = min(_machine(), _cgroup(one.pid))
    seen = max((_peak(pid) for pid in one.slots), default=0)
    largest, whose = max(
        (seen, "as the largest has been"),
        (max_rss or 0, "max_rss_per_slot"),
        (ceiling["largest"] or 0, f"as {ceiling['type']} may become"),
    )
    need = largest * len(one.slots)
    return finding(
        "memory",
        need <= room,
        f"{len(one.slots)} slots of {largest / _MIB:.0f} MiB ({whose}) would hold "
        f"{need / _MIB:.0f} of {room / _MIB:.0f} MiB",
        "when they all do, the kernel kills one: fewer slots, lower ceilings, or more memory",
        note=True,
    )


def _running(loaded: Loaded) -> list[Local]:
    found = []
    with suppress(Failure):  # there is none on this host
        for peer in peers_here(loaded):
            with suppress(ControlError):  # it has just left
                state = peer.ask("status")
                slots = [one["pid"] for one in state["slots"] if one["pid"]]
                groups = state.get("control_groups")
                found.append(Local(peer.pid, slots, state["host"], groups))
    return found


def _systemctl() -> str:
    """What systemd says of our units; nothing where it is not the init."""
    program = shutil.which("systemctl")
    if program is None or not Path("/run/systemd/system").is_dir():
        return ""
    command = [program, "show", "jobctl.service", "jobctl@*.service", f"--property={_UNIT_ASKED}"]
    try:
        done = subprocess.run(  # noqa: S603 - systemd's own program, with words of ours
            command, capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _limit_of(pid: int) -> int:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/limits").read_text()
        if found := re.search(r"^Max open files\s+(\d+)", text, re.M):
            return int(found[1])
    return resource.RLIM_INFINITY if resource.RLIM_INFINITY > 0 else 2**63


def _peak(pid: int) -> int:
    """The most that the process has held, in bytes."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/status").read_text()
        if found := re.search(r"^VmHWM:\s+(\d+) kB", text, re.M):
            return int(found[1]) * 1024
    return 0


def _machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup(pid: int) -> int:
    """The memory that the control group of a process allows; a lot where there is no limit."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                limit = Path(f"/sys/fs/cgroup{path}/memory.max")
            elif "memory" in controllers.split(","):
                limit = Path(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")
            else:
                continue
            with suppress(OSError, ValueError):  # "max", or no such controller
                return int(limit.read_text())
    return 2**63
