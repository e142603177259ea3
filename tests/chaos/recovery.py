"""`make recovery`: how long until work goes on after each kind of death, on this machine.

Each is measured between two facts: the fault, and what shows that it is over. The lease is a
setting; what does not depend on it is compared with nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.migrate import migrate
from jobctl.supervisor.duties import AMNESTY_SECONDS
from tests.servers import FAST, chosen_bindir, guarded_folder
from tests.standby import Pair, stop
from tests.system.host import Host, Hosts, Jobs, jobs_of
from tests.waiting import until

LEASE = 5.0


class Laboratory:
    """A server, a folder, and hosts on demand."""

    def __init__(self, server: EmbeddedPostgres, folder: Path) -> None:
        self.server = server
        self.hosts = Hosts(server.dsn(), folder)
        self._folder = folder
        self._runs = 0

    def host(self, name: str) -> Host:
        return self.hosts.start(name, "--slots", "2", "--lease", f"{LEASE:g}s").ready()

    def started_job(self, jobs: Jobs) -> str:
        """The name of a job that has begun and waits."""
        self._runs += 1
        name = f"job{self._runs}"
        jobs.enqueue("wait_for", {"name": name})
        self.until_run(name, 1)
        return name

    def until_run(self, name: str, times: int) -> None:
        file = self._folder / name
        until(
            lambda: file.exists() and len(file.read_text().splitlines()) >= times,
            within=180,
            what=f"run {times} of {name}",
        )

    def let_go(self, name: str) -> None:
        (self._folder / f"{name}.go").touch()


def slot_killed(lab: Laboratory, jobs: Jobs) -> float:
    """An idle slot: until its replacement is ready."""
    host = lab.host("a")
    before = host.slots()
    victim = next(iter(before))
    begun = time.monotonic()
    os.kill(before[victim], signal.SIGKILL)
    until(lambda: host.slots().get(victim) not in (None, before[victim]), what="a new slot")
    return time.monotonic() - begun


def supervisor_restarted(lab: Laboratory, jobs: Jobs) -> float:
    """kill -9, and started again at once as systemd would: until its job runs again."""
    host = lab.host("a")
    name = lab.started_job(jobs)
    host.kill()
    begun = time.monotonic()
    lab.hosts.start("a", "--slots", "2", "--lease", f"{LEASE:g}s")
    lab.until_run(name, 2)
    took = time.monotonic() - begun
    lab.let_go(name)
    return took


def host_gone(lab: Laboratory, jobs: Jobs) -> float:
    """It leads and does not come back: until its job runs elsewhere."""
    host = lab.host("a")
    name = lab.started_job(jobs)
    until(lambda: host.state()["leader"], within=30, what="it to lead")
    lab.host("b")
    # A host that has only just begun cannot know that it was not the database that was away.
    time.sleep(LEASE + AMNESTY_SECONDS)
    host.kill()
    begun = time.monotonic()
    lab.until_run(name, 2)
    took = time.monotonic() - begun
    lab.let_go(name)
    return took


def postgresql_back(lab: Laboratory, jobs: Jobs) -> float:
    """Immediately stopped, away for three seconds: until a job that waited has ended."""
    lab.host("a")
    jobs.connection.close()
    stop(lab.server, signal.SIGQUIT)
    time.sleep(3)
    lab.server.start()
    begun = time.monotonic()
    with jobs_of(lab.server.dsn()) as again:
        again.wait(again.enqueue("add", {"a": 1, "b": 1}), "succeeded", within=60)
    return time.monotonic() - begun


ROWS: tuple[tuple[str, str, Callable[[Laboratory, Jobs], float]], ...] = (
    ("slot killed", "replacement ready", slot_killed),
    ("supervisor killed and restarted", "its job runs again", supervisor_restarted),
    (f"host gone for good, the leader (lease {LEASE:g} s)", "its job runs again", host_gone),
    ("PostgreSQL back after 3 s", "a new job is done", postgresql_back),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.recovery", description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="how often each is measured")
    words = parser.parse_args()
    _say(f"{'what happens':45} {'until':20} {'median':>8} {'worst':>8}")
    for what, until_what, measure in ROWS:
        taken = [_once(measure) for _ in range(words.times)]
        _say(f"{what:45} {until_what:20} {statistics.median(taken):6.2f} s {max(taken):6.2f} s")
    promotions = [_promotion() for _ in range(words.times)]
    _say(
        f"{'primary dead, standby promoted':45} {'a new job is done':20} "
        f"{statistics.median(promotions):6.2f} s {max(promotions):6.2f} s"
    )
    return 0


def _once(measure: Callable[[Laboratory, Jobs], float]) -> float:
    with guarded_folder() as folder, tempfile.TemporaryDirectory() as work:
        server = EmbeddedPostgres(
            folder / "pg", bindir=chosen_bindir(), settings={**FAST, "synchronous_commit": "on"}
        )
        migrate(server.start())
        lab = Laboratory(server, Path(work))
        try:
            with jobs_of(server.dsn()) as jobs:
                return measure(lab, jobs)
        finally:
            lab.hosts.end()


def _promotion() -> float:
    with guarded_folder() as folder, tempfile.TemporaryDirectory() as work:
        pair = Pair(folder / "pair")
        hosts = Hosts(pair.dsn(), Path(work))
        try:
            hosts.start("a", "--slots", "2").ready()
            begun = time.monotonic()
            pair.promote()
            with jobs_of(pair.primary.dsn()) as jobs:
                jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded", within=60)
            return time.monotonic() - begun
        finally:
            hosts.end()
            pair.destroy()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
