"""The way to the database that a slot is told: by a private way, used when a handler wants it."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from tests.system.host import Host, Hosts, Jobs
from tests.waiting import until

PASSWORD = "in-no-list-of-processes"


def _processes(host: Host) -> list[Path]:
    """The supervisor, its template and its slots."""
    children = Path(f"/proc/{host.pid}/task/{host.pid}/children").read_text().split()
    return [Path(f"/proc/{pid}") for pid in (str(host.pid), *children)]


def test_it_is_seen_nowhere(hosts: Hosts, jobs: Jobs, database: str, tmp_path: Path) -> None:
    """Not in the arguments, titles and environments of processes, nor in the log; it works."""
    file = tmp_path / "dsn"
    file.write_text(make_conninfo(database, password=PASSWORD))
    host = hosts.start(
        "a", "--slots", "1", "--dsn-file", str(file), app="promises", environ={"JOBCTL_DSN": ""}
    ).ready()
    found = jobs.wait(jobs.enqueue("look_at_the_connection"), "succeeded")["result"]
    assert PASSWORD not in str(found["environment"])
    assert found["environment"]["JOBCTL_SCHEMA"] == "jobctl"
    assert len(_processes(host)) >= 3
    for process in _processes(host):
        for name in ("cmdline", "environ"):
            assert PASSWORD.encode() not in (process / name).read_bytes()
    assert PASSWORD not in host.log.read_text()


def test_what_a_handler_is_lent(hosts: Hosts, jobs: Jobs) -> None:
    """One connection for the slot's jobs, named after both, and clean for each."""
    host = hosts.start("a", "--slots", "1", app="promises").ready()
    seen = []
    for soil in (True, False):
        args = {"soil": soil}
        row = jobs.wait(jobs.enqueue("look_at_the_connection", args), "succeeded")["result"]["row"]
        pid, timeout, name, path, work_mem, locks = row
        seen.append(pid)
        assert name == "jobctl a:1 look_at_the_connection"
        assert timeout.endswith(("ms", "s", "min"))
        assert "jobctl" not in path
        assert (work_mem, locks) == ("4MB", 0)
    assert seen[0] == seen[1]
    assert host.said("job_left") == []  # it is the slot's own


def test_a_slot_that_runs_nothing_holds_no_transaction(hosts: Hosts, jobs: Jobs) -> None:
    """Nor does it open a connection before a handler wants one."""
    hosts.start("a", "--slots", "2", app="promises").ready()
    jobs.wait(jobs.enqueue("say_quickly", {"phase": "x"}), "succeeded")
    query = (
        "SELECT application_name, state FROM pg_stat_activity"
        " WHERE application_name LIKE 'jobctl a:%'"
    )
    assert jobs.connection.execute(query).fetchall() == []
    jobs.wait(jobs.enqueue("look_at_the_connection", {"soil": True}), "succeeded")
    until(
        lambda: [row["state"] for row in jobs.connection.execute(query)] == ["idle"],
        what="one idle connection",
    )


def test_the_server_is_started_again(hosts: Hosts, jobs: Jobs, database: str) -> None:
    """A kept connection that was cut costs the next job nothing."""
    hosts.start("a", "--slots", "1", app="promises").ready()
    jobs.wait(jobs.enqueue("look_at_the_connection"), "succeeded")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'jobctl a:1%'"
        )
    row = jobs.wait(jobs.enqueue("look_at_the_connection"), "succeeded")
    assert row["attempt"] == 1


def test_a_host_has_at_most_four_connections(hosts: Hosts, jobs: Jobs) -> None:
    """However many slots it has: three where jobs end, and one to lead. And one more for each slot
    that has lent one. So the operator's page counts."""
    both = [
        hosts.start(name, "--slots", slots, app="promises").ready()
        for name, slots in (("a", "1"), ("b", "5"))
    ]

    def connected() -> dict[bool, int]:
        """By whether that host leads."""
        query = "SELECT FROM pg_stat_activity WHERE application_name ~ %s"
        return {
            host.state()["leader"]: jobs.connection.execute(
                query, (f"^jobctl {host.name}[: ]",)
            ).rowcount
            for host in both
        }

    for idle in both:
        idle.ask("drain")
        jobs.wait(jobs.enqueue("say_quickly", {"phase": "x"}), "succeeded")
        idle.ask("undrain")
    until(lambda: connected() == {True: 4, False: 3}, within=30, what="as many as are promised")
    jobs.wait(jobs.enqueue("look_at_the_connection", {"soil": False}), "succeeded")
    until(lambda: sum(connected().values()) == 8, what="the one that was lent")
