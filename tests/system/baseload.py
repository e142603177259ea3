"""Ten minutes of a real day's peak: six hosts of eight slots, 50 jobs a second, and what happens on
such a day.

    make baseload         (ARGS="--seconds 120")

Handlers take 50 to 500 ms; some fail, some hang until their deadline; two crons fire every second.
After a quarter of the time there is a rolling deploy with restarts, after half of it the host that
leads is killed and stays away until its lease is over, then a rolling reload. Every job has to
succeed, none may run twice at the same time, no second of a cron may be left out or fire twice.
Exits with 1 if it is not so.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from jobctl.bench.processes import cpu_seconds, descendants
from jobctl.store.embedded import EmbeddedPostgres
from tests.system.ledger import Books, books
from tests.system.load import Diary, Figures, Producer, figures, plain
from tests.system.rolling import Roller, ground
from tests.waiting import until

#: Of the jobs, so many fail at first, and so many hang at first.
FAILING, HANGING = 0.03, 0.002
CRONS = ("count", "sweep")
SAMPLE_SECONDS = 2.0
#: After a lease is over the leader gives a host's jobs to others within this.
REAPED_SECONDS = 20.0


@dataclass(frozen=True)
class Report:
    """What came of it."""

    seconds: float
    rate: float  # jobs a second that were really enqueued
    figures: Figures
    attempts: dict[str, int]  # that did not simply succeed, by outcome
    crons: list[Books]
    cpu: dict[str, float]  # of a core
    deploys: int
    waited_for_the_killed: float  # seconds until a job of the killed host ran again

    def wrong(self) -> list[str]:
        """What must not be, in words."""
        found = self.figures.wrong()
        for cron in self.crons:
            found += cron.wrong
        return found

    def __str__(self) -> str:
        seen = self.figures
        per_job = (seen.jobs + seen.spent) / max(1, seen.jobs)
        again = {word: many for word, many in self.attempts.items() if word in REDELIVERED}
        lines = [
            f"{seen.jobs} jobs in {self.seconds:.0f} s, {self.rate:.1f} a second; "
            f"{seen.lost} lost, {seen.doubles} doubles, {self.deploys} deploys, 1 host killed",
            f"waiting: p50 {seen.p50 * 1000:.0f} ms, p95 {seen.p95 * 1000:.0f} ms, "
            f"p99 {seen.p99 * 1000:.0f} ms, worst {seen.worst:.2f} s",
            f"attempts per finished job: {per_job:.3f}",
            f"attempts that did not succeed: {_counted(self.attempts)}",
            f"redeliveries: {_counted(again)}; jobs of the killed host waited up to "
            f"{self.waited_for_the_killed:.0f} s; {seen.again} jobs ran to their end again",
            *(str(cron) for cron in self.crons),
            "CPU, of a core: " + ", ".join(f"{who} {part:.0%}" for who, part in self.cpu.items()),
        ]
        return "\n".join(lines)


#: Outcomes after which a job is given to somebody again through no fault of its handler.
REDELIVERED = ("lost", "crashed", "interrupted")


class Meter(threading.Thread):
    """How much CPU time processes have used that come and go: looked at every now and then."""

    def __init__(self, who: Callable[[], dict[str, list[int]]]) -> None:
        super().__init__(daemon=True)
        self._who = who
        self._used: dict[tuple[str, int], float] = {}
        self._first: dict[tuple[str, int], float] = {}
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.wait(SAMPLE_SECONDS):
            self._look()

    def shares(self, seconds: float) -> dict[str, float]:
        """Ends it. Of a core, by name."""
        self._ends.set()
        self.join()
        self._look()
        shares: dict[str, float] = {}
        for (name, pid), used in self._used.items():
            shares[name] = shares.get(name, 0.0) + used - self._first[name, pid]
        return {name: used / seconds for name, used in shares.items()}

    def _look(self) -> None:
        for name, pids in self._who().items():
            for pid in pids:
                used = cpu_seconds([pid])
                # One that was there before the load has used something that is not the load's.
                self._first.setdefault((name, pid), used if not self._used else 0.0)
                self._used[name, pid] = max(used, self._used.get((name, pid), 0.0))


def args(chance: Random) -> dict[str, Any]:
    """Of one job."""
    made = plain(chance)
    drawn = chance.random()
    if drawn < HANGING:
        made["hangs"] = 1
    elif drawn < HANGING + FAILING:
        made["fails"] = chance.choice((1, 1, 2))
    return made


def run(
    server: EmbeddedPostgres, folder: Path, *, hosts: int, slots: int, rate: float, seconds: float,
    lease: float, say: Callable[[str], None],
) -> Report:  # fmt: skip
    """The day."""
    dsn = server.dsn()
    roller = Roller(dsn, folder, hosts, slots, "--lease", f"{lease:g}s", app="baseday")
    producer = Producer(dsn, rate, args)
    begun = time.monotonic()

    def pids() -> dict[str, list[int]]:
        supervisors = [host.pid for host in roller.hosts if host.process.poll() is None]
        below = [pid for one in supervisors for pid in descendants(one)]
        postmaster = server.pid()
        database = [] if postmaster is None else [postmaster, *descendants(postmaster)]
        return {"PostgreSQL": database, "supervisors": supervisors, "slots": below}

    def reach(share: float, what: str) -> None:
        while (left := begun + share * seconds - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
        say(f"{time.monotonic() - begun:4.0f} s, {producer.mark()} jobs: {what}")

    with _ended(roller, producer):
        meter = Meter(pids)
        producer.start()
        meter.start()
        reach(0.25, "a rolling deploy, with restarts")
        roller.roll(roller.restart)
        reach(0.5, "the host that leads is killed, and stays away")
        number = next(n for n, host in enumerate(roller.hosts) if host.state()["leader"])
        victim = roller.hosts[number]
        until(lambda: victim.state()["busy"] > 0, within=60, what="the victim to run something")
        held = _held_by(dsn, victim.name)
        victim.kill()
        time.sleep(lease + REAPED_SECONDS)
        roller.start_again(number)
        reach(0.75, "a rolling deploy, with reloads")
        roller.roll(roller.reload)
        reach(1.0, "the end")
        rate = producer.rate()
        producer.end()
        took = time.monotonic() - begun
        cpu = meter.shares(took)
        with psycopg.connect(dsn, autocommit=True) as connection:
            ids = producer.ids
            until(lambda: _open(connection) == 0, within=lease + 120, what="the last jobs")
            for host in roller.hosts:
                host.stop(within=60)
            diary = Diary.read(folder)
            return Report(
                seconds=took,
                rate=rate,
                figures=figures(connection, diary, ids),
                attempts=_attempts(connection),
                crons=[books(dsn, name) for name in CRONS],
                cpu=cpu,
                deploys=roller.deploys,
                waited_for_the_killed=_waited(diary, held),
            )


@contextmanager
def _ended(roller: Roller, producer: Producer) -> Any:
    try:
        yield
    finally:
        producer.end()
        roller.end()


def _open(connection: psycopg.Connection[Any]) -> int:
    """Jobs of the load; crons go on."""
    row = connection.execute("SELECT count(*) FROM jobctl.job WHERE type = 'work'").fetchone()
    assert row is not None
    return int(row[0])


def _held_by(dsn: str, host: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT c.job_id FROM jobctl.claim AS c "
            "JOIN jobctl.session AS n ON n.id = c.session_id WHERE n.host = %s",
            (host,),
        ).fetchall()
    return [row[0] for row in rows]


def _waited(diary: Diary, jobs: list[int]) -> float:
    runs = [diary.began[job] for job in jobs if len(diary.began.get(job, ())) > 1]
    return max((began[-1] - began[-2] for began in runs), default=0.0)


def _attempts(connection: psycopg.Connection[Any]) -> dict[str, int]:
    rows = connection.execute(
        "SELECT outcome, count(*) FROM jobctl.attempts GROUP BY 1 ORDER BY 1"
    ).fetchall()
    return dict(rows)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{many} {word}" for word, many in counts.items()) or "none"


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make baseload")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--slots", type=int, default=8, help="of each host")
    parser.add_argument("--rate", type=float, default=50.0, help="jobs a second")
    parser.add_argument("--lease", type=float, default=60.0, help="seconds")
    wanted = parser.parse_args()
    with ground("baseload") as (server, folder):
        report = run(
            server, folder, hosts=wanted.hosts, slots=wanted.slots, rate=wanted.rate,
            seconds=wanted.seconds, lease=wanted.lease, say=_say,
        )  # fmt: skip
    sys.stdout.write(f"{report}\n")
    problems = report.wrong()
    for words in problems:
        _say(words)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
