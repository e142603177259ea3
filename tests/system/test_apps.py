"""Apps that behave badly when they are imported, and handlers that do odd things to a slot."""

from __future__ import annotations

from tests.system.host import Hosts, Jobs, alive
from tests.waiting import until


def test_a_handler_forks_and_its_child_comes_back(hosts: Hosts, jobs: Jobs) -> None:
    """One process answers; the child is gone, and the next job is hurt by nobody."""
    hosts.start("one", "--slots", "1").ready()
    for _ in range(3):
        assert jobs.wait(jobs.enqueue("fork_and_return"), "succeeded")["attempt"] == 1
        assert jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")["crashes"] == 0


def test_an_app_starts_a_program_when_it_is_imported(hosts: Hosts) -> None:
    """It is gone with the supervisor: nothing of ours is left behind."""
    host = hosts.start("one", "--slots", "1", app="starts_a_helper").ready()
    pid = int((hosts.folder / "helper").read_text())
    assert alive([pid])
    assert host.stop() == 0
    assert not alive([pid])


def test_an_app_hangs_when_it_is_imported(hosts: Hosts, jobs: Jobs) -> None:
    """It is killed at the boot time-out, the log shows where it hung, and nobody takes the host
    for working."""
    host = hosts.start("one", "--slots", "1", "--boot-timeout", "2s", app="hangs_at_import")
    (said, *_) = until(lambda: host.said("app_failed"), within=30, what="the kill")
    assert said["error_class"] == "ImportTimeout"
    assert "OOM" not in said["error"]
    until(lambda: any("hangs_at_import.py" in one["message"] for one in host.said("output")),
          what="the stack")  # fmt: skip
    assert host.get("/readyz")[0] == 503
    row = jobs.connection.execute("SELECT ready FROM jobctl.session").fetchone()
    assert row == {"ready": 0}


def test_the_database_user_may_not_write(hosts: Hosts, jobs: Jobs) -> None:
    """It is found out before the work, which right is lacking is said, and what to do; nobody has
    to guess, and no restart by systemd would help."""
    jobs.connection.execute("DROP ROLE IF EXISTS looks_only")
    jobs.connection.execute("CREATE ROLE looks_only")
    try:
        jobs.connection.execute("GRANT USAGE ON SCHEMA jobctl TO looks_only")
        jobs.connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA jobctl TO looks_only")
        host = Hosts(f"{hosts.dsn}&options=-c%20role%3Dlooks_only", hosts.folder).start("shy")
        try:
            assert host.process.wait(timeout=30) == 78
            (said,) = host.said("configuration_refused")
            assert "lacks rights" in said["error"]
            assert "INSERT on attempt" in said["error"]
            assert "jobctl grants --worker ROLE --apply" in said["error"]
        finally:
            host.end()
    finally:
        jobs.connection.execute("DROP OWNED BY looks_only")
        jobs.connection.execute("DROP ROLE looks_only")
