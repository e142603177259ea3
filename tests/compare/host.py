"""A host under a supervised restart loop, as systemd would keep it: `Restart=always`, a second
between. A stop sends SIGTERM to the main process of each unit and starts nothing any more.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path
from time import monotonic

from jobctl.bench.processes import descendants

RESTART_AFTER = 1.0


class Unit:
    """One command that is kept running."""

    def __init__(self, command: str, environment: dict[str, str], log: Path, cwd: Path) -> None:
        self._command = shlex.split(command)
        self._environment = environment
        self._log = log
        self._cwd = cwd
        self._ended_at: float | None = None
        self._stopping = False
        self.restarts = 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                cwd=self._cwd,
                # Of its own, as a unit has it. And a group that has stopped processes in it is hung
                # up by the kernel when it loses its shell: that must not reach the script.
                start_new_session=True,
            )

    def tick(self) -> None:
        """Starts it again when it is time."""
        if self._stopping or self.process.poll() is None:
            return
        now = monotonic()
        if self._ended_at is None:
            self._ended_at = now
        if now - self._ended_at >= RESTART_AFTER:
            self._ended_at = None
            self.restarts += 1
            self.process = self._start()

    def stop(self) -> None:
        self._stopping = True
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


class Host:
    """The units of one machine."""

    def __init__(
        self, name: str, commands: list[str], environment: dict[str, str], folder: Path, cwd: Path
    ) -> None:
        self.units = [
            Unit(command, environment, folder / f"{name}-{at}.log", cwd)
            for at, command in enumerate(commands)
        ]

    def tick(self) -> None:
        for unit in self.units:
            unit.tick()

    def stop(self) -> None:
        for unit in self.units:
            unit.stop()

    def gone(self) -> bool:
        """Whether every main process has ended."""
        return all(unit.process.poll() is not None for unit in self.units)

    def pids(self) -> list[int]:
        """All of its processes, main ones last."""
        mains = [unit.process.pid for unit in self.units if unit.process.poll() is None]
        return [pid for main in mains for pid in reversed(descendants(main))] + mains
