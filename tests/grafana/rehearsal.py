"""A rehearsal: three hosts, real jobs, every kind of trouble, and a Prometheus that watches.

What dashboards and alerts ask for is asked of it. The pictures in the README are of a longer one:
`python -m tests.grafana.pictures`.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.grafana.alerts import FILE as RULES
from tests.grafana.prometheus import Prometheus
from tests.system.host import PROGRAM, Host, Hosts
from tests.waiting import until

APPS = Path(__file__).with_name("apps")
#: Enqueued each second, of every type that does not spoil the day.
ORDINARY = {
    "send_invoice_email": 16,
    "resize_image": 9,
    "charge_card": 5,
    "ask_to_be_cancelled": 0.2,
}
#: Types that do, once each act.
TROUBLE = ("refund", "render_thumbnail", "sync_partner", "transcode")


class Rehearsal:
    """The stage: hosts, their Prometheus, and a producer. Times in seconds."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.began = time.time()
        self._dsn = dsn
        self.prometheus = Prometheus(folder, RULES)
        self._hosts = Hosts(dsn, folder)
        self._running: dict[str, Host] = {}
        self._lives: dict[str, int] = {}
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("SET search_path = jobctl")

    def begin(self) -> None:
        """Three hosts."""
        self.prometheus.ready()
        subprocess.run(
            [*PROGRAM, "limits", "set", "bank", "2"], check=True, stdout=subprocess.DEVNULL,
            env={**os.environ, "JOBCTL_DSN": self._dsn},
        )  # fmt: skip
        for name in ("ant", "bee", "cat"):
            self.start(name)

    def start(self, name: str) -> Host:
        """A host that is ready, and watched."""
        self._lives[name] = life = self._lives.get(name, 0) + 1
        path = os.pathsep.join([str(APPS), os.environ.get("PYTHONPATH", "")])
        host = self._hosts.start(
            name, "--slots", "4", "--lease", "4s", app="drama", environ={"PYTHONPATH": path}
        )
        # Its log goes on where that of its life before ended.
        until(lambda: len(host.said("ready")) == life, within=60, what=f"{name} to be ready")
        self._running[name] = host
        addresses = {one: it.said("listening")[-1]["address"] for one, it in self._running.items()}
        self.prometheus.watch(addresses)
        return host

    def work(self, seconds: float, load: float = 1.0) -> None:
        """Enqueues as usual for so long; `load` 1 is about half of what the slots can do."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for name, each_second in ORDINARY.items():
                jobs = int(each_second * load / 4 + random.random())
                self.enqueue(name, jobs)
            time.sleep(0.25)

    def enqueue(self, type_: str, jobs: int = 1, args: str = "{}", delay: str = "0") -> None:
        """So many of a type."""
        self._connection.execute(
            "SELECT enqueue(%s, %s::jsonb, delay => %s::interval) FROM generate_series(1, %s)",
            (type_, args, delay, jobs),
        )

    def trouble(self, *, unknown: bool = True) -> None:
        """One of each; and `unknown`: one of a type that nobody has code for."""
        for name in TROUBLE:
            self.enqueue(name)
        if unknown:
            self.enqueue("unheard_of")
        self.enqueue("move_customers")
        self.enqueue("build_report", 2, '{"seconds": 3}')
        self.enqueue("build_report", 2, '{"seconds": 1}', "30s")

    def cancel(self, type_: str) -> None:
        """Whatever of this type has not ended."""
        self._connection.execute(
            "SELECT cancel(id) FROM jobs WHERE type = %s AND state IN ('queued', 'running')",
            (type_,),
        )

    def flood(self, jobs: int) -> None:
        """More at once than can be done at once."""
        self.enqueue("resize_image", jobs)

    def pause(self, queue: str) -> None:
        self._connection.execute("INSERT INTO queue_pause (name) VALUES (%s)", (queue,))
        self._connection.execute("SELECT announce()")

    def resume(self, queue: str) -> None:
        self._connection.execute("DELETE FROM queue_pause WHERE name = %s", (queue,))
        self._connection.execute("SELECT announce()")

    def drain(self, name: str) -> None:
        self._running[name].ask("drain")

    def undrain(self, name: str) -> None:
        self._running[name].ask("undrain")

    def kill(self, name: str) -> None:
        """kill -9 of a supervisor that runs something; others get its jobs."""
        host = self._running.pop(name)
        until(lambda: host.state()["busy"], within=30, what="something that runs there")
        host.kill()

    def end(self) -> None:
        self._connection.close()
        self._hosts.end()
        self.prometheus.stop()


@contextmanager
def rehearsal(dsn: str, folder: Path) -> Iterator[Rehearsal]:
    """With three hosts that are ready."""
    stage = Rehearsal(dsn, folder)
    try:
        stage.begin()
        yield stage
    finally:
        stage.end()
