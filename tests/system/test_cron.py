"""Crons on real hosts, while leaders come and go. `make cron-soak` is the long form."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import psycopg

from jobctl.store import reading
from tests.system.host import Host, Hosts, Jobs
from tests.system.ledger import books
from tests.waiting import until

USURPER = (sys.executable, str(Path(__file__).with_name("usurper.py")))
#: A short lease, so that a host that was killed is soon known to be dead.
QUICK = ("--slots", "1", "--lease", "4s")


def leaders(hosts: list[Host]) -> list[Host]:
    """Who says that it leads."""
    return [host for host in hosts if host.process.poll() is None and _leads(host)]


def _leads(host: Host) -> bool:
    lines = host.log.read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    said = [event for event in events if event in ("started", "leading", "not_leading")]
    return said[-1:] == ["leading"]


def fired(jobs: Jobs, name: str = "tick") -> int:
    row = jobs.connection.execute(
        "SELECT count(*) AS n FROM jobctl.cron_fire WHERE name = %s", (name,)
    ).fetchone()
    assert row is not None
    return int(row["n"])


def wait_for_more(jobs: Jobs, more: int, within: float = 30) -> None:
    before = fired(jobs)
    until(lambda: fired(jobs) >= before + more, within=within, what=f"{more} more firings")


def test_no_second_is_fired_twice_or_left_out_while_leaders_change(
    hosts: Hosts, jobs: Jobs
) -> None:
    """One is killed, one loses its lock, one leaves, and one always believes that it leads."""
    fleet = [hosts.start(name, *QUICK, app="crons").ready() for name in ("one", "two")]
    until(lambda: fired(jobs) > 1, what="the first firings")
    usurper = hosts.start("usurper", *QUICK, app="crons", program=USURPER).ready()
    wait_for_more(jobs, 3)
    until(lambda: len(leaders(fleet)) == 1, what="one leader")
    (victim,) = leaders(fleet)
    victim.kill()
    fleet = [host for host in fleet if host is not victim]
    usurper.stop()
    until(lambda: leaders(fleet), what="another leader")
    wait_for_more(jobs, 2)
    fleet.append(hosts.start(victim.name, *QUICK, app="crons").ready())
    jobs.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'jobctl %% lead' AND datname = current_database()"
    )
    wait_for_more(jobs, 3)
    until(lambda: len(leaders(fleet)) == 1, what="one leader")
    (leader,) = leaders(fleet)
    leader.stop()
    (other,) = [host for host in fleet if host is not leader]
    until(lambda: leaders([other]), within=3, what="the other to follow at once")
    wait_for_more(jobs, 2)
    other.stop()
    for name in ("tick", "tock"):
        found = books(hosts.dsn, name)
        assert found.wrong == [], found
        assert found.planned > 10
    jobs.nothing_is_misplaced()


def test_a_fire_in_two_transactions_is_found_out(hosts: Hosts, jobs: Jobs) -> None:
    """The control of the books: a job whose planned time is not recorded with it is seen."""
    hosts.start("one", *QUICK, app="crons").ready()
    until(lambda: fired(jobs) > 3, what="some firings")
    jobs.connection.execute("SELECT jobctl.enqueue('tick')")
    jobs.connection.execute(
        "DELETE FROM jobctl.cron_fire WHERE scheduled_for ="
        " (SELECT min(scheduled_for) + interval '1 second' FROM jobctl.cron_fire)"
    )
    wrong = " ".join(books(hosts.dsn, "tick").wrong)
    assert "never fired" in wrong and "of no firing" in wrong


def test_what_the_list_and_the_metrics_say(hosts: Hosts, jobs: Jobs) -> None:
    host = hosts.start("one", *QUICK, app="crons").ready()
    until(lambda: fired(jobs) > 1, what="some firings")
    with reading.connect(hosts.dsn, "jobctl") as connection:
        rows = {row["name"]: row for row in reading.crons(connection)}
        (seen,) = reading.hosts(connection)
    assert seen["leader"]
    assert rows["tick"]["last_result"] == "fired"
    assert 0 <= rows["tick"]["last_lag_seconds"] < 5
    nightly = rows["nightly"]
    assert (nightly["next_at"].hour, nightly["next_at"].minute) == (20, 0)  # 03:00 there
    assert nightly["last_scheduled_for"] is None
    page = host.get("/metrics")[1]
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert float(lines['jobctl_cron_fires_total{name="tick",result="fired"}']) >= 2
    assert lines['jobctl_cron_fires_total{name="nightly",result="fired"}'] == "0.0"
    assert float(lines['jobctl_cron_lag_seconds{name="tick"}']) < 5
    assert float(lines['jobctl_leader_duty_age_seconds{duty="cron"}']) < 10
    assert float(lines['jobctl_leader_duty_errors_total{duty="reap"}']) == 0


def test_a_cron_that_cannot_be_fired_is_no_others_fault(hosts: Hosts, jobs: Jobs) -> None:
    """Somebody has written nonsense into the table: it is said, and the others fire on time."""
    with psycopg.connect(hosts.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO jobctl.cron_entry (name, definition) VALUES ('bad', %s)",
            (json.dumps({"schedule": "soon", "tz": "UTC", "origin": "database"}),),
        )
    host = hosts.start("one", *QUICK, app="crons").ready()
    until(lambda: fired(jobs) > 3, what="the others to fire")
    said = host.said("cron_failed")
    assert said and said[0]["name"] == "bad"
    assert len(said) <= 2
    assert books(hosts.dsn, "tick").wrong == []


def test_a_disabled_cron_does_not_fire_and_a_reload_changes_nothing(
    hosts: Hosts, jobs: Jobs
) -> None:
    host = hosts.start("one", *QUICK, app="crons").ready()
    until(lambda: fired(jobs) > 0, what="a firing")
    jobs.connection.execute("UPDATE jobctl.cron_entry SET disabled_at = now() WHERE name = 'tick'")
    host.send(signal.SIGHUP)
    until(lambda: host.said("reloaded"), what="it")
    assert host.said("reloaded")[0]["level"] == "info"
    assert not host.said("fleet_notice")
    before = fired(jobs, "tock")
    ticks = fired(jobs)
    until(lambda: fired(jobs, "tock") > before + 1, what="the other one's firings")
    assert fired(jobs) <= ticks + 1
