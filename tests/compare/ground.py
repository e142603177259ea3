"""The ground of one run: the hosts of the system under test, its desk, the diary of its jobs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from tests.compare.apps.desk import Record
from tests.compare.diary import Diary
from tests.compare.host import Host
from tests.compare.order import Order
from tests.compare.roster import OWN

ROOT = Path(__file__).resolve().parents[2]
NAP = 0.05

# Of the caller's own settings none reaches a system.
FOREIGN = ("PG", "JOBCTL_", "OBAN_", "CELERY_", "RQ_", "COMPARE_", "PYTEST")


class RunError(Exception):
    """Why there is no result."""


class Ground:
    """Opens the desk; hosts are started on it."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.terms = order.terms
        self.hosts: list[Host] = []
        own = order.system.name == OWN
        self._environment = {**_clean_environment(own), **self.terms.environment()}
        with (self.terms.folder / "desk.log").open("ab") as log:
            self._desk = subprocess.Popen(
                [order.python, "-c", f"from {order.system.app} import desk; desk()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self.terms.folder,
                text=True,
            )
        self._answer()

    def start(self, name: str) -> Host:
        """A host of this name."""
        (self.terms.folder / name).mkdir(mode=0o700)
        words = {
            "python": self.order.python,
            "host": name,
            "folder": str(self.terms.folder),
            "dsn": self.terms.dsn,
            "redis": self.terms.redis,
            "slots": f"{self.terms.slots}",
            "grace": f"{self.terms.grace:g}",
            "stale": f"{self.terms.stale:g}",
        }
        commands = [unit.format(**words) for unit in self.order.system.units]
        host = Host(name, commands, self._environment, self.terms.folder, self.terms.folder)
        self.hosts.append(host)
        return host

    def enqueue(self, name: str, deed: str, *, limited: bool = False) -> str:
        told = self._ask(ask="enqueue", name=name, deed=deed, limited=limited)
        return str(told["id"])

    def look(self, job: str) -> Record:
        return Record(**self._ask(ask="look", id=job))

    def diary(self) -> Diary:
        return Diary.read(self.terms.folder)

    def go(self, name: str) -> None:
        """Lets the jobs that wait for this go on."""
        (self.terms.folder / f"{name}.go").touch()

    def watch(self, fact: Callable[[], bool], within: float) -> bool:
        """Keeps the hosts running until the fact is there; False when it is not in time."""
        end = monotonic() + within
        while not fact():
            if monotonic() > end:
                return False
            for host in self.hosts:
                host.tick()
            time.sleep(NAP)
        return True

    def expect(self, fact: Callable[[], bool], within: float, what: str) -> None:
        """The same for what every system must be able to do."""
        if not self.watch(fact, within):
            raise RunError(f"{what}: not within {within:g} s; see the logs in {self.terms.folder}")

    def _ask(self, **asked: Any) -> dict[str, Any]:
        assert self._desk.stdin is not None
        self._desk.stdin.write(json.dumps(asked) + "\n")
        self._desk.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._desk.stdout is not None
        line = self._desk.stdout.readline()
        if not line:
            said = (self.terms.folder / "desk.log").read_text(errors="replace").strip()
            last = said.splitlines()[-1:] or ["nothing"]
            raise RunError(f"the client of {self.order.system.name} ended and said: {last[0]}")
        return dict(json.loads(line))


def _clean_environment(own: bool) -> dict[str, str]:
    """jobctl may be found by a path of the caller's; a peer has all in its own environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(FOREIGN)
        and name not in ("DATABASE_URL", "PYTHONHOME", "VIRTUAL_ENV")
    }
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "") if own else ""]
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
