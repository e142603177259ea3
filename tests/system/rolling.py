"""What a rolling deploy costs: three hosts, 50 jobs a second, one host after the other, again and
again.

    make rolling          (ARGS="--seconds 60 --json")

The same load three times: left alone; while hosts are drained, leave and are started again; while
they reload. A deploy may lose nothing, spend no attempt and interrupt nobody, and the 99th
percentile of waiting may be longer by less than a second. Exits with 1 if it is not so.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.migrate import migrate
from tests.servers import chosen_bindir, guarded_folder
from tests.system.host import Host
from tests.system.load import Diary, Figures, Producer, deploy, figures, plain, prepare
from tests.waiting import until

#: By how much a deploy may lengthen the 99th percentile of waiting, in seconds.
MOST_ADDED = 1.0
#: Between two hosts of one deploy, as a person or a playbook would take it.
PAUSE = 0.5
#: Nothing stays behind, however this program ends.
DIES_WITH_US = ("setpriv", "--pdeathsig", "TERM")
#: A machine that is busy with other things may take so long to start a host.
STARTING = 120.0


class Roller:
    """Some hosts, and the deploys that go over them."""

    def __init__(
        self, dsn: str, folder: Path, hosts: int, slots: int, *options: str, app: str = "busy"
    ) -> None:
        self.folder = folder
        self.version = 1
        self.deploys = 0
        self.took: list[float] = []  # seconds, for each host that was deployed
        self._dsn = dsn
        self._app = app
        self._options = ("--slots", str(slots), *options)
        self._lives = 0
        prepare(folder, self.version)
        self.hosts: list[Host] = []
        try:
            for number in range(hosts):  # one after the other: a small machine has no room for all
                self.hosts.append(self._start(f"web{number + 1}"))
                self.hosts[-1].ready(within=STARTING)
        except BaseException:
            self.end()
            raise

    def _start(self, name: str) -> Host:
        self._lives += 1
        life = self.folder / f"life{self._lives}"
        life.mkdir()
        return Host(
            self._dsn, life, name, *self._options, app=self._app,
            environ={"JOBCTL_TEST_FOLDER": str(self.folder)}, prefix=DIES_WITH_US,
        )  # fmt: skip

    def start_again(self, number: int) -> None:
        """One that has left, or was killed."""
        self.hosts[number] = self._start(self.hosts[number].name)
        self.hosts[number].ready(within=STARTING)

    def restart(self, number: int) -> None:
        """SIGTERM, as `systemctl restart` does; the next host is not touched before it is ready."""
        host, begun = self.hosts[number], time.monotonic()
        host.send(signal.SIGTERM)
        code = host.process.wait(timeout=120)
        assert code == 0, f"{host.name} left with {code}"
        self.start_again(number)
        self.took.append(time.monotonic() - begun)

    def reload(self, number: int) -> None:
        """As `jobctl reload --wait`."""
        host, begun = self.hosts[number], time.monotonic()
        asked = host.ask("reload")["reload"]["asked"]

        def over() -> bool:
            reload = host.state()["reload"]
            assert not reload["failed"], reload
            return bool(reload["number"] >= asked and reload["decided"] and not reload["old"])

        until(over, within=120, what=f"the reload of {host.name}")
        self.took.append(time.monotonic() - begun)

    def roll(self, how: Callable[[int], None]) -> None:
        """One deploy: a new version, host after host."""
        self.version += 1
        self.deploys += 1
        deploy(self.folder, self.version)
        for number in range(len(self.hosts)):
            how(number)
            time.sleep(PAUSE)

    def end(self) -> None:
        for host in self.hosts:
            host.end()


@dataclass(frozen=True)
class Phase:
    """A stretch of the load."""

    name: str
    deploys: int
    seconds: float
    figures: Figures
    host_seconds: float = 0.0  # that the slowest host took; a restarted one is away meanwhile


def run(
    dsn: str, folder: Path, *, hosts: int, slots: int, rate: float, seconds: float,
    say: Callable[[str], None] = lambda line: None,
) -> list[Phase]:  # fmt: skip
    """The three phases, of `seconds` each or as long as the deploy that was begun takes."""
    roller = Roller(dsn, folder, hosts, slots)
    producer = Producer(dsn, rate, plain)
    ways: dict[str, Callable[[int], None] | None] = {
        "no deploy": None, "drain and restart": roller.restart, "reload": roller.reload,
    }  # fmt: skip
    stretches: list[tuple[str, int, float, float, int, int]] = []
    try:
        producer.start()
        time.sleep(2)  # the first jobs of a host are not those of a steady day
        for name, how in ways.items():
            say(f"{name}: {seconds:g} s of {rate:g} jobs a second")
            begun, first, before = time.monotonic(), producer.mark(), roller.deploys
            roller.took.clear()
            while time.monotonic() < begun + seconds:
                if how is None:
                    time.sleep(0.1)
                else:
                    roller.roll(how)
            took, last = time.monotonic() - begun, producer.mark()
            slowest = max(roller.took, default=0.0)
            stretches.append((name, roller.deploys - before, took, slowest, first, last))
        newest = producer.mark()
        until(lambda: producer.mark() >= newest + 20, within=60, what="jobs after the deploys")
        producer.end()
        with psycopg.connect(dsn, autocommit=True) as connection:
            until(lambda: _open(connection) == 0, within=120, what="the last jobs")
            diary = Diary.read(folder)
            old = {diary.versions[job] for job in producer.ids[newest:]} - {str(roller.version)}
            assert not old, f"after the last deploy, jobs still ran version {old}"
            return [
                Phase(
                    name, deploys, took,
                    figures(connection, diary, producer.ids[first:last]), slowest,
                )
                for name, deploys, took, slowest, first, last in stretches
            ]  # fmt: skip
    finally:
        producer.end()
        roller.end()


def wrong(phases: Sequence[Phase], most_added: float = MOST_ADDED) -> list[str]:
    """What a deploy must not cost and did, in words."""
    found = []
    alone = phases[0].figures
    for phase in phases:
        seen = phase.figures
        found += [f"{phase.name}: {words}" for words in seen.wrong()]
        if seen.spent or seen.interrupted or seen.again:
            found.append(
                f"{phase.name}: {seen.spent} attempts spent, {seen.interrupted} interrupted, "
                f"{seen.again} jobs ran to their end again"
            )
        if (added := seen.p99 - alone.p99) >= most_added:
            found.append(f"{phase.name}: the 99th percentile of waiting is longer by {added:.2f} s")
    return found


def table(phases: Sequence[Phase]) -> str:
    """For people. Waiting in milliseconds."""
    titles = ("", "deploys", "slowest host", "jobs", "lost", "spent", "interrupted", "doubles",
              "p50 ms", "p95 ms", "p99 ms", "worst ms", "added p99 ms")  # fmt: skip
    alone = phases[0].figures
    rows: list[tuple[str, ...]] = [titles]
    for phase in phases:
        seen = phase.figures
        waits = [seen.p50, seen.p95, seen.p99, seen.worst, seen.p99 - alone.p99]
        rows.append((
            phase.name, str(phase.deploys), f"{phase.host_seconds:.1f} s", str(seen.jobs),
            str(seen.lost), str(seen.spent), str(seen.interrupted), str(seen.doubles),
            *(f"{wait * 1000:.0f}" for wait in waits),
        ))  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(titles))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _open(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT count(*) FROM jobctl.job").fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def ground(name: str) -> Iterator[tuple[EmbeddedPostgres, Path]]:
    """A server of its own, with the settings of a real one, and a folder where jobs meet; both are
    gone afterwards, also after SIGTERM."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with guarded_folder() as roots, tempfile.TemporaryDirectory(prefix=f"jobctl-{name}-") as folder:
        server = EmbeddedPostgres(roots / "pg", bindir=chosen_bindir())
        server.start()
        migrate(server.dsn())
        yield server, Path(folder)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make rolling")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each of the three phases")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--slots", type=int, default=8, help="of each host")
    parser.add_argument("--rate", type=float, default=50.0, help="jobs a second")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with ground("rolling") as (server, folder):
        dsn = server.dsn()
        phases = run(
            dsn, folder, hosts=wanted.hosts, slots=wanted.slots, rate=wanted.rate,
            seconds=wanted.seconds, say=_say,
        )  # fmt: skip
    shown = (
        json.dumps([asdict(phase) for phase in phases], indent=2) if wanted.json else table(phases)
    )
    sys.stdout.write(shown + "\n")
    problems = wrong(phases)
    for words in problems:
        _say(words)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
