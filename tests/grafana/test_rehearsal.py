"""Every query of every panel and of every rule has an answer, from a Prometheus that has scraped a
run in which everything happened; and its numbers are the database's."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.databases import MigratedDatabase
from tests.grafana.alerts import rules
from tests.grafana.dashboards.files import DASHBOARDS
from tests.grafana.queries import everywhere
from tests.grafana.rehearsal import Rehearsal, rehearsal
from tests.waiting import until

#: The run is in the first test's time.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def stage(
    _migrated: MigratedDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rehearsal]:
    """After a minute of work and of every kind of trouble."""
    _migrated.clean()
    with rehearsal(_migrated.dsn, tmp_path_factory.mktemp("rehearsal")) as played:
        played.work(4)
        played.trouble()
        played.work(8)
        played.trouble()
        played.pause("payments")
        played.drain("ant")
        played.work(4)
        played.undrain("ant")
        played.enqueue("build_report", 8, '{"seconds": 20}')
        played.work(2)
        played.kill("cat")
        played.start("cat")
        played.work(8)
        played.resume("payments")
        prometheus = played.prometheus
        played.cancel("move_customers")
        for fact in (
            # A host that counted it may be the one that was killed.
            "max_over_time(jobctl_poisoned_jobs_total[10m]) > 0",
            'max_over_time(jobctl_redeliveries_total{reason="lease_expired"}[10m]) > 0',
            'ALERTS{alertname="JobctlPoison", alertstate="firing"}',
            "sum(jobctl_jobs_enqueued_total) > 100",
            "jobctl_unrunnable_jobs > 0",
            "max_over_time(jobctl_cancel_latency_seconds_count[10m]) > 0",
            "jobctl_table_size_bytes > 0",
            'jobctl_limit_places{limit="bank"} == 2',
            "max_over_time(jobctl_limit_waiting_jobs[10m]) > 0",
            'max_over_time(jobctl_effects_total{result="done"}[10m]) > 0',
        ):
            until(lambda fact=fact: prometheus.ask(fact), within=90, what=fact)  # type: ignore[misc]
        yield played


def test_every_panel_has_something_to_show(stage: Rehearsal) -> None:
    """Over the time of the run, with all variables at All."""
    now = time.time()
    silent = [
        f"{dashboard.title}, {where}: {query}"
        for dashboard in DASHBOARDS
        for where, query in everywhere(dashboard.to_json())
        if not stage.prometheus.ask_range(query, stage.began, now, 1.0)
    ]
    assert silent == []


def test_everything_that_a_rule_asks_for_is_there(stage: Rehearsal) -> None:
    """Each selector by itself: whether it fires is promtool's to say."""
    silent = []
    for name, rule in rules().items():
        for selector in re.findall(r"(?<![:\w])(?:jobctl_\w+|up)(?:\{[^}]*\})?", rule["expr"]):
            if not stage.prometheus.ask(f"last_over_time({selector}[10m])"):
                silent.append(f"{name}: {selector}")
    assert silent == []


def test_every_recorded_series_is_there(stage: Rehearsal) -> None:
    """Of queues that had work."""
    recorded = [name for name, rule in rules().items() if "record" in rule]
    assert len(recorded) == 5
    assert [name for name in recorded if not stage.prometheus.ask(f'{name}{{queue="mail"}}')] == []


def test_alerts_fire_in_the_run(stage: Rehearsal) -> None:
    """Those that do not wait: dead letters with their owner, poison, a lost host's jobs."""
    fired = {
        series["metric"]["alertname"]: series["metric"]
        for series in stage.prometheus.ask('last_over_time(ALERTS{alertstate="firing"}[10m])')
    }
    assert {"JobctlDeadLetters", "JobctlPoison", "JobctlRedeliveries"} <= fired.keys()
    assert stage.prometheus.ask(
        'last_over_time(ALERTS{alertname="JobctlDeadLetters", owner="billing"}[10m])'
    )


def test_the_numbers_are_the_databases(stage: Rehearsal, _migrated: MigratedDatabase) -> None:
    """Every job that was enqueued is counted once, whoever led; by queue and type."""
    with psycopg.connect(_migrated.dsn) as connection:

        def agree() -> bool:
            connection.rollback()
            rows = connection.execute(
                "SELECT queue, CASE WHEN type = 'unheard_of' THEN 'other' ELSE type END, count(*)"
                " FROM jobctl.jobs WHERE type <> 'count_stock' GROUP BY 1, 2"
            ).fetchall()
            counted = stage.prometheus.ask(
                "sum by (queue, job_type)"
                ' (max_over_time(jobctl_jobs_enqueued_total{job_type!="count_stock"}[10m])) > 0'
            )
            found = {
                (one["metric"]["queue"], one["metric"]["job_type"]): int(float(one["value"][1]))
                for one in counted
            }
            return found == {(queue, type_): jobs for queue, type_, jobs in rows}

        until(agree, within=60, what="what was counted to be what is there")
