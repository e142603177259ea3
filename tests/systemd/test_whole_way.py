"""The whole way, once: three supervisors under systemd, one PostgreSQL, 50 jobs a second, two
deploys, a job that hangs and one that eats; Prometheus sees it, Alertmanager says it, and says when
it is over.

`make whole-way` runs it, in some minutes. The rules are those that are shipped, with every duration
divided by HASTE: an alert that looks back over an hour is over after three minutes.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.grafana.alertmanager import Alertmanager, Desk
from tests.grafana.alerts import alerts, hastened
from tests.grafana.prometheus import Prometheus
from tests.system.host import APPS, Jobs
from tests.system.load import Diary, Producer, deploy, figures, plain, prepare
from tests.systemd.conftest import UNITS
from tests.systemd.machine import Machine
from tests.systemd.unit import Unit
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HASTE = 20
NAMES = ("one", "two", "three")
SLOTS, RATE = 8, 50.0
APP = """
import time
import jobctl
from busy import work
from jobctl import Retry

@jobctl.job(timeout="3s", retry=Retry(max_attempts=1), owner="reports")
def hang(ctx):
    time.sleep(600)

@jobctl.job(retry=Retry(max_attempts=9, max_crashes=2, min_backoff="100ms"), owner="images")
def devour(ctx):
    eaten = []
    while True:
        eaten.append(bytearray(8 << 20))
"""
#: What a hung job and an eaten host are for people to know; nothing else of this is.
EXPECTED = {"JobctlDeadLetters", "JobctlPoison"}
#: What the supervisors count, and the rows that must say the same. By labels.
COUNTED = {
    "jobctl_jobs_enqueued_total": (
        ("job_type", "queue"),
        "SELECT type, queue, count(*) FROM jobctl.jobs GROUP BY 1, 2",
    ),
    "jobctl_jobs_finished_total": (
        ("job_type", "queue", "state"),
        "SELECT type, queue, state, count(*) FROM jobctl.jobs GROUP BY 1, 2, 3",
    ),
    # Those that succeeded have no row of their own: their job's says it.
    'jobctl_attempts_total{outcome!="succeeded"}': (
        ("job_type", "queue", "outcome"),
        "SELECT j.type, j.queue, a.outcome, count(*) FROM jobctl.attempts AS a"
        " JOIN jobctl.jobs AS j ON j.id = a.job_id GROUP BY 1, 2, 3",
    ),
    # Of the job that hung, and of the one that ate; not those that a reload has replaced.
    'jobctl_slot_exits_total{reason!="reload"}': (
        ("reason",),
        "SELECT CASE outcome WHEN 'crashed' THEN 'memory' ELSE outcome END, count(*)"
        " FROM jobctl.attempts GROUP BY 1",
    ),
    "jobctl_redeliveries_total": (
        ("reason",),
        "SELECT 'crash', count(*) FROM jobctl.attempts AS a WHERE outcome = 'crashed' AND EXISTS"
        " (SELECT FROM jobctl.attempts AS o WHERE o.job_id = a.job_id AND o.attempt > a.attempt)"
        " HAVING count(*) > 0",
    ),
}
#: So long after its commit a job has been counted by the leader. Seconds.
LEADER_COUNTS = 20.0
Counts = dict[tuple[str, ...], int]


class Watch:
    """Prometheus, Alertmanager and the desk, in the network of the machine."""

    def __init__(self, machine: Machine, inside: ThreadPoolExecutor, folder: Path) -> None:
        self._inside = inside
        rules = folder / "hastened.json"
        rules.write_text(hastened(HASTE))
        self.desk: Desk = inside.submit(Desk).result()
        self._alertmanager = Alertmanager(folder, self.desk.url, prefix=machine.door)
        self._prometheus = Prometheus(
            folder, rules, alerts=self._alertmanager.address, prefix=machine.door
        )
        inside.submit(self._prometheus.ready).result()
        self._prometheus.watch({name: f"127.0.0.1:{_port(name)}" for name in NAMES})

    def ask(self, query: str) -> list[dict[str, Any]]:
        return self._inside.submit(self._prometheus.ask, query).result()

    def counted(self, metric: str, labels: tuple[str, ...]) -> Counts:
        """Over all hosts."""
        found = self.ask(f"sum by ({', '.join(labels)}) ({metric}) > 0")
        return {
            tuple(one["metric"][label] for label in labels): int(float(one["value"][1]))
            for one in found
        }

    def end(self) -> None:
        self._prometheus.stop()
        self._alertmanager.stop()
        self.desk.close()


@pytest.fixture
def watch(booted: Machine, tmp_path: Path) -> Iterator[Watch]:
    """Started before the supervisors, as on a real day."""
    with booted.network() as inside:
        watching = Watch(booted, inside, tmp_path)
        try:
            yield watching
        finally:
            watching.end()


@pytest.fixture
def units(booted: Machine, database: str, dsn_inside: Callable[[str], str]) -> Iterator[list[Unit]]:
    """Three instances of the template, as three hosts: names, slots, settings and ports of their
    own."""
    shared = booted.shared
    for name in ("app", "meet"):
        (shared / name).mkdir()
    (shared / "meet").chmod(0o777)
    prepare(shared / "meet", 1)
    (shared / "meet" / "locks").chmod(0o777)
    shutil.copy(APPS / "busy.py", shared / "app")
    (shared / "app" / "shop.py").write_text(APP)
    booted.write("/etc/systemd/system/jobctl@.service", (UNITS / "jobctl@.service").read_text())
    instances = [Unit(booted, f"jobctl@{name}.service") for name in NAMES]
    try:
        for name, each in zip(NAMES, instances, strict=True):
            booted.run("ln", "-sfn", "/opt/jobctl", f"/opt/{name}")
            booted.write(f"/etc/jobctl/{name}.dsn", dsn_inside(database), 0o600)
            booted.write(
                f"/etc/jobctl/{name}.toml",
                f'app = "shop"\nhost = "{name}"\nslots = {SLOTS}\n'
                f'metrics_listen = "127.0.0.1:{_port(name)}"\n',
            )
            each.drop_in(
                "Environment=JOBCTL_TEST_FOLDER=/srv/test/meet", "ReadWritePaths=/srv/test",
                "MemoryMax=500M", "MemorySwapMax=0",
            )  # fmt: skip
        yield instances
    finally:
        for each in instances:
            each.forget()
        for name in ("app", "meet"):
            shutil.rmtree(shared / name)


def test_the_whole_way(
    booted: Machine, watch: Watch, units: list[Unit], database: str,
    dsn_inside: Callable[[str], str], jobs: Jobs,
) -> None:  # fmt: skip
    """Nothing is lost or run twice, no deploy costs an attempt; exactly what people should know is
    said, and taken back; and the numbers in Prometheus are the rows in the database."""
    if not booted.holds_memory:
        pytest.skip("no controller of memory is to be had here")
    meet = booted.shared / "meet"
    dsn = dsn_inside(database)
    for each in units:
        each.systemctl("start")
    until(lambda: len(watch.ask("up == 1")) == len(NAMES), within=30, what="three that are scraped")

    # A deploy with drains, host after host, under load.
    load = Producer(database, RATE, plain)
    load.start()
    try:
        until(lambda: load.mark() > RATE * 5, within=60, what="some seconds of load")
        deploy(meet, 2)
        for name, each in zip(NAMES, units, strict=True):
            code, out, _ = each.jobctl(
                "drain", "--host", name, "--wait", "--timeout", "60s", "--dsn", dsn
            )
            assert code == 0, out
            each.systemctl("restart")
            until(
                lambda name=name: watch.ask(f'up{{instance="{name}"}} == 1'),  # type: ignore[misc]
                within=30, what=f"{name} to be back",
            )  # fmt: skip
        after = load.mark()
        until(lambda: load.mark() > after + RATE * 5, within=60, what="load after the deploy")
    finally:
        load.end()
    _over(jobs)
    before = _counts(watch, jobs)

    # A deploy by reload, a job that hangs and one that eats, under load until all has been said.
    more = Producer(database, RATE, plain, seed=100)
    more.start()
    try:
        until(lambda: more.mark() > RATE * 5, within=60, what="some seconds of load")
        hung, greedy = jobs.enqueue("hang"), jobs.enqueue("devour")
        assert jobs.wait(hung, "dead", within=60)["failure_class"] == "timeout"
        dead = jobs.wait(greedy, "dead", within=120)
        assert "memory" in dead["last_error"] or "SIGKILL" in dead["last_error"]
        deploy(meet, 3)
        for each in units:
            each.systemctl("reload")
        newest = more.mark()
        until(lambda: watch.desk.names("firing") >= EXPECTED, within=60, what="alerts that fire")
        until(
            lambda: watch.desk.names("resolved") >= EXPECTED,
            within=3600 / HASTE + 90, what="alerts that are over",
        )  # fmt: skip
    finally:
        more.end()
    _over(jobs)

    assert watch.desk.names("firing") == EXPECTED, watch.desk.names("firing")
    owners = {labels["owner"] for _, labels in watch.desk.of("JobctlDeadLetters")}
    assert owners == {"reports", "images"}
    assert all(alerts()[name]["annotations"]["runbook_url"] for name in EXPECTED)

    ids = [*load.ids, *more.ids]
    diary = Diary.read(meet)
    seen = figures(jobs.connection, diary, ids)
    assert seen.wrong() == [] and (seen.spent, seen.interrupted, seen.again) == (0, 0, 0), seen
    assert seen.p99 < 10, seen  # what the shipped rules promise
    assert {diary.versions[job] for job in more.ids[newest:]} == {"3"}
    assert len(jobs.attempts(hung)) == 1 and len(jobs.attempts(greedy)) == 2
    assert [each.show("NRestarts") for each in units] == ["0"] * len(units)

    for metric, now in _counts(watch, jobs).items():
        # Since the restarts, with which a supervisor's counters begin again.
        then = before[metric]
        assert _less(now.told, then.told) == _less(now.rows, then.rows), metric
    assert watch.ask('sum(jobctl_jobs{state!="dead"}) > 0') == []
    sys.stdout.write(f"{seen}\n")


class _Both:
    """What Prometheus counts, and what the rows say."""

    def __init__(self, told: Counts, rows: Counts) -> None:
        self.told, self.rows = told, rows


def _counts(watch: Watch, jobs: Jobs) -> dict[str, _Both]:
    """While nothing runs: from scrapes after the leader, too, has counted for the last time."""
    begun = time.time() + LEADER_COUNTS
    until(lambda: watch.ask(f"min(timestamp(up)) > {begun}"), within=90, what="a later scrape")
    counts = {}
    for metric, (labels, query) in COUNTED.items():
        rows = jobs.connection.execute(query).fetchall()  # each: the labels, and how many
        counts[metric] = _Both(
            watch.counted(metric, labels),
            {tuple(map(str, label)): many for *label, many in (row.values() for row in rows)},
        )
    return counts


def _less(now: Counts, before: Counts) -> Counts:
    return {
        key: many - before.get(key, 0) for key, many in now.items() if many != before.get(key, 0)
    }


def _over(jobs: Jobs) -> None:
    def left() -> list[dict[str, Any]]:
        query = (
            "SELECT id, type, state, attempt FROM jobctl.jobs"
            " WHERE state NOT IN ('succeeded', 'dead') LIMIT 9"
        )
        return jobs.connection.execute(query).fetchall()

    try:
        until(lambda: not left(), within=120, what="the last jobs")
    except AssertionError as error:
        raise AssertionError(f"{error}: {left()}") from error


def _port(name: str) -> int:
    return 9500 + NAMES.index(name)
