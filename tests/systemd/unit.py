"""One unit of a booted systemd, as `systemctl` and `journalctl` show it."""

from __future__ import annotations

import json

from tests.systemd.machine import Machine
from tests.waiting import until


class Unit:
    """Started, looked at and taken away again."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self._lines: list[str] = []
        self._since = machine.run("date", "+%s.%N").stdout.strip()

    def drop_in(self, *lines: str, section: str = "Service") -> None:
        """Adds directives, as an operator would."""
        self._lines += [f"[{section}]", *lines]
        folder = f"/etc/systemd/system/{self.name}.d"
        self.machine.write(f"{folder}/50-test.conf", "\n".join(self._lines) + "\n")
        self.machine.run("systemctl", "daemon-reload")

    def systemctl(self, verb: str, *options: str, check: bool = True) -> int:
        """`systemctl VERB UNIT`; returns its exit code."""
        ran = self.machine.run("systemctl", verb, *options, self.name, check=False)
        assert ran.returncode == 0 or not check, f"{ran.stderr}\n{self.journal()}"
        return ran.returncode

    def show(self, name: str) -> str:
        """One property."""
        return self.machine.run(
            "systemctl", "show", "--value", "-p", name, self.name
        ).stdout.strip()

    @property
    def pid(self) -> int:
        """Of the main process, inside."""
        return int(self.show("MainPID"))

    def until_status(self, *words: str, within: float = 20) -> str:
        """The line that the supervisor has told systemd, once it has these words."""

        def said() -> str:
            line = self.show("StatusText")
            return line if all(word in line for word in words) else ""

        return until(said, within=within, what=f"{words} in the status")

    def until_active(self, *, restarts: int = 0, within: float = 40) -> None:
        """Returns once it is active after so many restarts of systemd's."""
        wanted = ("active", str(restarts))
        until(
            lambda: (self.show("ActiveState"), self.show("NRestarts")) == wanted,
            within=within,
            what=f"active after {restarts} restarts",
        )

    def journal(self) -> str:
        """What stands there about it since the test began."""
        since = f"@{self._since}"
        return self.machine.run(
            "journalctl", "-u", self.name, "--since", since, "-o", "cat", "--no-pager"
        ).stdout

    def entries(self, *fields: str) -> list[dict[str, str]]:
        """Of the journal, since the test began, those with these fields (`NAME=value`)."""
        since = f"@{self._since}"
        found = self.machine.run(
            "journalctl", *fields, "--since", since, "-o", "json", "--no-pager", check=False
        )
        return [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]

    def jobctl(self, *words: str, check: bool = True) -> tuple[int, str, str]:
        """The command, typed by root on this machine."""
        ran = self.machine.run("/opt/jobctl/bin/jobctl", *words, check=check)
        return ran.returncode, ran.stdout, ran.stderr

    def forget(self) -> None:
        """Stopped without mercy, and nothing of it is left."""
        self.systemctl("kill", "--signal=SIGKILL", "--kill-who=all", check=False)
        self.systemctl("stop", check=False)
        self.systemctl("reset-failed", check=False)
        self.machine.run("rm", "-rf", f"/etc/systemd/system/{self.name}.d")
