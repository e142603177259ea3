"""The shipped unit in a real systemd: what happens to the service, and to its jobs.

`conftest.py` boots one in namespaces; without root these stories are skipped. The suite tells the
first few; `make systemd` tells all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from tests.network import Proxy, Weather
from tests.system.host import Jobs
from tests.systemd.conftest import APP
from tests.systemd.machine import Machine
from tests.systemd.unit import Unit
from tests.waiting import until


def _pids(unit: Unit) -> list[int]:
    group = unit.machine.run("systemctl", "status", "--no-pager", "--lines=0", unit.name)
    assert group.stdout
    said = unit.machine.run("ps", "-o", "pid=", "-u", "jobctl", check=False).stdout
    return [int(word) for word in said.split()]


def test_start_returns_when_it_works(unit: Unit, jobs: Jobs) -> None:
    """READY, a status line, a job; the DSN in no environment; no slot can speak for the service."""
    unit.systemctl("start")
    assert unit.show("ActiveState") == "active"
    unit.until_status("0 of 2 slots busy")
    jobs.wait(jobs.enqueue("version"), "succeeded", within=30)
    unit.until_status("leads", "nothing waits", within=40)
    for pid in _pids(unit):
        environment = unit.machine.run("cat", f"/proc/{pid}/environ").stdout
        assert "dbname" not in environment and "postgresql://" not in environment
        if pid != unit.pid:
            assert "NOTIFY_SOCKET" not in environment and "WATCHDOG" not in environment
    groups = [unit.machine.run("cat", f"/proc/{pid}/cgroup").stdout for pid in _pids(unit)]
    slots = [group for group in groups if "/slot-" in group]
    assert len(slots) == 2 and all("/jobctl.service/jobctl-" in group for group in slots)
    assert unit.show("NRestarts") == "0"
    # Delegate= is for these: an ordinary user's slots have control groups of their own.
    assert "each slot has one of its own in" in unit.journal()


def test_the_journal_finds_a_job_and_doctor_the_unit(
    unit: Unit, jobs: Jobs, database: str, dsn_inside: Callable[[str], str]
) -> None:
    """Native fields, without a setting: the supervisor sees where its standard error ends."""
    unit.systemctl("start")
    job = jobs.enqueue("version")
    jobs.wait(job, "succeeded", within=30)

    wanted = f"JOBCTL_JOB_ID={job}"
    (entry,) = until(lambda: unit.entries(wanted), within=20, what="the line of the attempt")
    assert entry["MESSAGE"].startswith(f"version #{job} succeeded in ")
    assert (entry["JOBCTL_EVENT"], entry["JOBCTL_JOB_TYPE"]) == ("job_succeeded", "version")
    assert (entry["PRIORITY"], entry["SYSLOG_IDENTIFIER"]) == ("6", "jobctl")
    assert entry["_SYSTEMD_UNIT"] == unit.name
    code, out, err = unit.jobctl("doctor", "--json", "--dsn", dsn_inside(database), check=False)
    assert code in (0, 3), err
    (found,) = [one for one in json.loads(out) if one["about"] == "unit"]
    assert (found["level"], found["fact"]) == ("fine", f"{unit.name} is active")


def test_the_supervisor_is_killed(unit: Unit, jobs: Jobs, meet: Path) -> None:
    """Its children are gone with it, systemd starts it again, and the job runs once more."""
    unit.systemctl("start")
    job = jobs.enqueue("wait_for", {"name": "patient"})
    until((meet / "patient").exists, within=20, what="the job")
    before = set(_pids(unit))
    assert len(before) == 4  # supervisor, template, two slots
    unit.machine.run("kill", "-9", str(unit.pid))
    unit.until_active(restarts=1)
    assert before.isdisjoint(_pids(unit))
    (meet / "patient.go").touch()
    after = jobs.wait(job, "succeeded", within=60)
    assert (after["attempt"], after["crashes"]) == (2, 1)


def test_stop_waits_for_a_job_that_runs(unit: Unit, jobs: Jobs, meet: Path) -> None:
    """Longer than TimeoutStopSec, because the supervisor asks for more while it drains."""
    unit.drop_in("TimeoutStopSec=2")
    unit.systemctl("start")
    job = jobs.enqueue("wait_for", {"name": "patient"})
    until((meet / "patient").exists, within=20, what="the job")
    unit.systemctl("stop", "--no-block")
    begun = monotonic()
    unit.until_status("stopping because of SIGTERM: 1 job may run", f"wait_for #{job}")
    until(lambda: monotonic() > begun + 5, within=20, what="more than TimeoutStopSec")
    assert unit.show("ActiveState") == "deactivating"
    (meet / "patient.go").touch()
    until(lambda: unit.show("ActiveState") == "inactive", within=30, what="the end")
    assert unit.show("Result") == "success"
    after = jobs.job(job)
    assert (after["state"], after["attempt"]) == ("succeeded", 1)


def test_a_bad_configuration_is_not_tried_again(unit: Unit, booted: Machine) -> None:
    """78, with what is wrong in the journal."""
    booted.write("/etc/jobctl/jobctl.toml", 'app = "shop"\nslotz = 2\n')
    assert unit.systemctl("start", check=False) != 0
    until(lambda: unit.show("ActiveState") == "failed", within=30, what="the end")
    assert (unit.show("ExecMainStatus"), unit.show("NRestarts")) == ("78", "0")
    assert "Did you mean slots?" in unit.journal()


@pytest.mark.slow
def test_a_database_that_is_away_does_not_hold_up_the_start(
    unit: Unit, jobs: Jobs, network: Proxy
) -> None:
    """A machine boots without PostgreSQL; the service says what it waits for, and then works."""
    network.change(Weather.REFUSING)
    unit.systemctl("start")
    unit.until_status("PostgreSQL does not answer")
    network.change(Weather.FAIR)
    jobs.wait(jobs.enqueue("version"), "succeeded", within=60)
    assert unit.show("NRestarts") == "0"


@pytest.mark.slow
def test_a_supervisor_that_is_stuck(unit: Unit, jobs: Jobs) -> None:
    """It feeds the watchdog as long as it supervises, and no longer."""
    unit.drop_in("WatchdogSec=6")
    unit.systemctl("start")
    begun = monotonic()
    until(lambda: monotonic() > begun + 9, within=30, what="longer than WatchdogSec")
    assert unit.show("NRestarts") == "0"
    unit.machine.run("kill", "-STOP", str(unit.pid))
    unit.until_active(restarts=1)
    assert "Watchdog timeout" in unit.journal()
    jobs.wait(jobs.enqueue("version"), "succeeded", within=30)


@pytest.mark.slow
def test_a_drain_that_is_stuck_is_not_given_more_time(unit: Unit, jobs: Jobs, meet: Path) -> None:
    """The other side of the story above: what stands still asks for nothing."""
    unit.drop_in("TimeoutStopSec=2")
    unit.systemctl("start")
    jobs.enqueue("wait_for", {"name": "patient"})
    until((meet / "patient").exists, within=20, what="the job")
    pid = unit.pid
    unit.systemctl("stop", "--no-block")
    unit.until_status("stopping because of SIGTERM")
    unit.machine.run("kill", "-STOP", str(pid))
    until(lambda: unit.show("ActiveState") == "failed", within=60, what="the end")
    assert unit.show("Result") in ("timeout", "watchdog")


@pytest.mark.slow
def test_reload(unit: Unit, jobs: Jobs, booted: Machine) -> None:
    """It returns when the new code is there; fails, and changes nothing, when it cannot be."""
    unit.systemctl("start")
    pid = unit.pid
    shop = booted.shared / "app" / "shop.py"
    shop.write_text(APP.replace("VERSION = 1", "VERSION = 2"))
    unit.systemctl("reload")
    jobctl_says = unit.jobctl("reload", "--wait", "--json")
    assert jobctl_says[0] == 0
    done = jobs.wait(jobs.enqueue("version"), "succeeded", within=30)
    assert done["result"] == {"version": 2}
    shop.write_text("import no_such_thing")
    assert unit.systemctl("reload", check=False) != 0
    unit.until_status("the new code was not taken", "no_such_thing")
    assert unit.show("ActiveState") == "active"
    done = jobs.wait(jobs.enqueue("version"), "succeeded", within=30)
    assert done["result"] == {"version": 2}
    shop.write_text(APP.replace("VERSION = 1", "VERSION = 3"))
    unit.machine.run("kill", "-HUP", str(pid))
    until(
        lambda: (
            jobs.wait(jobs.enqueue("version"), "succeeded", within=30)["result"] == {"version": 3}
        ),
        within=30,
        what="the third version",
    )
    assert unit.pid == pid


@pytest.mark.slow
def test_a_job_that_speaks_to_systemd_is_not_heard(unit: Unit, jobs: Jobs) -> None:
    """Whoever finds the socket by itself is still not the main process."""
    unit.systemctl("start")
    jobs.wait(jobs.enqueue("speak"), "succeeded", within=30)
    unit.until_status("leads", within=40)
    assert "said by a job" not in unit.show("StatusText")
    assert unit.show("ActiveState") == "active"


@pytest.mark.slow
def test_a_job_devours_the_memory_of_the_service(unit: Unit, jobs: Jobs, meet: Path) -> None:
    """The kernel ends that slot: not the supervisor, not its neighbour, not the service."""
    if not unit.machine.holds_memory:
        pytest.skip("no controller of memory is to be had here")
    unit.drop_in("MemoryMax=250M", "MemorySwapMax=0")
    unit.systemctl("start")
    pid = unit.pid
    bystander = jobs.enqueue("wait_for", {"name": "bystander"})
    until((meet / "bystander").exists, within=20, what="the bystander")
    greedy = jobs.wait(jobs.enqueue("devour"), "dead", within=90)
    assert greedy["failure_class"] in ("memory", "crash")
    assert "SIGKILL" in greedy["last_error"] or "memory" in greedy["last_error"]
    (meet / "bystander.go").touch()
    assert jobs.wait(bystander, "succeeded")["attempt"] == 1
    assert (unit.pid, unit.show("NRestarts"), unit.show("ActiveState")) == (pid, "0", "active")


@pytest.mark.slow
def test_a_crash_loop_ends(unit: Unit) -> None:
    """A port that somebody else has is a fault that no number of starts mends."""
    unit.drop_in("StartLimitBurst=3", section="Unit")
    squatter = "import socket, time; s = socket.create_server(('127.0.0.1', 9464)); time.sleep(600)"
    unit.machine.run(
        "systemd-run", "--unit=squatter", "--setenv=LD_LIBRARY_PATH=/opt/jobctl/python/lib",
        "/opt/jobctl/bin/python", "-c", squatter,
    )  # fmt: skip
    try:
        assert unit.systemctl("start", check=False) != 0
        until(lambda: unit.show("ActiveState") == "failed", within=60, what="systemd to give up")
        assert "Start request repeated too quickly" in unit.journal()
        assert "perhaps another supervisor" in unit.journal()
    finally:
        unit.machine.run("systemctl", "stop", "squatter")


@pytest.mark.slow
def test_drain_and_exit_comes_back(unit: Unit, jobs: Jobs) -> None:
    """What a deploy does: the old supervisor leaves by itself, systemd starts the new one."""
    unit.systemctl("start")
    code, out, _ = unit.jobctl("drain", "--wait", "--exit", "--timeout", "60s")
    assert code == 0 and "drained" in out
    unit.until_active(restarts=1)
    jobs.wait(jobs.enqueue("version"), "succeeded", within=30)


@pytest.mark.slow
def test_two_apps_on_one_host(
    unit: Unit, jobs: Jobs, booted: Machine, database: str, dsn_inside: Callable[[str], str]
) -> None:
    """The template: each instance has its own settings, DSN and socket; drain speaks to both."""
    instances = [Unit(booted, f"jobctl@{name}.service") for name in ("one", "two")]
    try:
        for number, (name, each) in enumerate(zip(("one", "two"), instances, strict=True)):
            booted.run("ln", "-sfn", "/opt/jobctl", f"/opt/{name}")
            booted.write(f"/etc/jobctl/{name}.dsn", dsn_inside(database), 0o600)
            booted.write(
                f"/etc/jobctl/{name}.toml",
                f'app = "shop"\nslots = 1\nmetrics_listen = "127.0.0.1:{9500 + number}"\n',
            )
            each.drop_in(
                "Environment=JOBCTL_TEST_FOLDER=/srv/test/meet", "ReadWritePaths=/srv/test"
            )
            each.systemctl("start")
        jobs.wait(jobs.enqueue("version"), "succeeded", within=30)
        _, out, _ = unit.jobctl("drain", "--wait", "--timeout", "60s")
        assert out.count("drained") == 2
        for each in instances:
            each.until_status("drained")
    finally:
        for each in instances:
            each.forget()


@pytest.mark.slow
def test_the_schema_is_migrated_by_a_unit_of_its_own(
    booted: Machine, unit: Unit, fresh_database: str, network: Proxy,
    dsn_inside: Callable[[str], str],
) -> None:  # fmt: skip
    """`systemctl start jobctl-migrate` returns how it went."""
    migrate = Unit(booted, "jobctl-migrate.service")
    try:
        booted.write("/etc/jobctl/migrate.dsn", dsn_inside(fresh_database), 0o600)
        migrate.systemctl("start")
        assert "Schema jobctl is up to date" in migrate.journal()
        network.change(Weather.REFUSING)
        assert migrate.systemctl("start", check=False) != 0
        assert migrate.show("ExecMainStatus") == "75"
    finally:
        migrate.forget()


def test_nothing_of_it_stays_on_the_host(booted: Machine) -> None:
    """What the machine writes is in memory of its own."""
    assert shutil.which("systemctl")
    booted.write("/etc/jobctl/canary", "x")
    assert not Path("/etc/jobctl/canary").exists()
    assert not Path("/etc/systemd/system/jobctl.service").exists()
