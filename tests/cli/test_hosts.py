"""`jobctl status`, `hosts`, `drain`, `undrain`: the fleet as operators see and steer it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobctl.cli import drain as drain_command
from jobctl.cli import progress
from jobctl.cli.endings import Failure
from jobctl.cli.here import peers_here
from jobctl.store import reading
from jobctl.store.reading import Connection
from jobctl.supervisor.control import ControlServer
from jobctl.supervisor.settings_sources import load
from tests.cli.conftest import Cli
from tests.servers import guarded_folder
from tests.store.standing import put, put_session
from tests.users import acting_as, as_root
from tests.waiting import until

NAMES = ("status", "drain", "undrain", "exit", "reload")


class Host:
    """The control socket of a supervisor that has two jobs to finish."""

    def __init__(self, folder: Path) -> None:
        self.busy = 2
        self.draining = False
        self.reload: dict[str, Any] = {
            "number": 0, "decided": False, "step": "loading", "failed": None, "error": None,
            "old": 0,
        }  # fmt: skip
        self.asked: list[str] = []
        self.leaves = asyncio.Event()
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    def __enter__(self) -> Host:
        self._thread.start()
        assert self._listens.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        self._thread.join(10)

    def leave(self) -> None:
        self._loop.call_soon_threadsafe(self.leaves.set)

    async def _run(self) -> None:
        commands = {name: self._command(name) for name in NAMES}
        server = ControlServer(self._folder, commands)
        await server.start()
        self._listens.set()
        await self.leaves.wait()
        await server.close()

    def _command(self, name: str) -> Callable[[Mapping[str, Any]], Any]:
        async def command(fields: Mapping[str, Any]) -> Mapping[str, Any]:
            self.asked.append(name)
            self.draining = {"drain": True, "undrain": False, "exit": True}.get(name, self.draining)
            return {
                "host": "alpha", "pid": os.getpid(), "draining": self.draining,
                "busy": self.busy, "reserve": 0, "unwritten": 0,
                "reload": {**self.reload, "asked": self.asked.count("reload")},
                "slots": [
                    {"slot": 1 + number, "job": 40 + number, "type": f"send{chr(27)}",
                     "seconds": 100.0 * (1 + number)}
                    for number in range(self.busy)
                ],
            }  # fmt: skip

        return command


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """On this host, where the command line looks for it."""
    with Host(tmp_path / "run") as listening:
        yield listening


def test_status_in_words_and_in_json(cli: Cli, connection: Connection) -> None:
    """Queues with what waits and for how long, supervisors, and what is wrong."""
    now = datetime.now(UTC)
    put_session(connection, 1, "alpha", leader=True, busy=3)
    put_session(connection, 2, "beta", draining=True, busy=1)
    put_session(connection, 3, "gamma", expires_at=now - timedelta(minutes=1))
    put(connection, "queued", queue="mail", run_at=now - timedelta(minutes=5))
    put(connection, "dead", queue="mail")
    stuck = put(connection, "running", queue="reports")
    connection.execute("UPDATE claim SET session_id = 99")
    facts = cli("status", "--json").json
    mail, reports = facts["queues"]
    assert (mail["queue"], mail["queued"], mail["dead"], mail["running"]) == ("mail", 1, 1, 0)
    assert 299 < mail["age_seconds"] < 400
    assert reports["running"] == 1
    assert (facts["supervisors"], facts["busy"], facts["slots"]) == (2, 4, 16)
    assert (facts["leader"], facts["draining"], facts["silent"]) == ("alpha", ["beta"], ["gamma"])
    assert [job["id"] for job in facts["stuck"]] == [stuck]
    text = cli("status").out
    assert "2 supervisors, 4 of 16 slots busy, leader: alpha" in text
    assert "draining: beta. jobctl undrain" in text
    assert "silent: gamma" in text
    assert "its supervisor is gone" in text
    assert "1 job died within the last hour. jobctl dead list --since 1h" in text
    troubles = [one["trouble"] for one in facts["troubles"]]
    assert troubles[0] == "1 running job looked after by nobody"  # the worst first
    assert text.index("has waited 5m") < text.index("draining: beta") < text.index("QUEUE")


def test_status_counts_no_further_than_it_says(
    cli: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`3+` in the table, `at_least` in JSON."""
    monkeypatch.setattr(reading, "LARGEST_COUNT", 3)
    for _ in range(5):
        put(connection, queue="mail")
    (mail,) = cli("status", "--json").json["queues"]
    assert (mail["queued"], mail["at_least"]) == (3, ["queued"])
    assert " 3+ " in cli("status").out


def test_status_without_a_supervisor(cli: Cli) -> None:
    """That nothing is worked on is the first line, and no failure of the command."""
    ran = cli("status")
    assert ran.code == 0
    assert ran.out.startswith("No supervisor is running")


def test_status_says_who_has_paused_what_and_that_it_is_nobodys_fault(
    cli: Cli, connection: Connection
) -> None:
    """An old job in a paused queue is no trouble; nor is a retention that keeps the dead."""
    now = datetime.now(UTC)
    put_session(connection, 1, "alpha", leader=True)
    put(connection, run_at=now - timedelta(hours=5))
    put(connection, "dead")
    connection.execute("UPDATE dead SET dead_since = now() - interval '2 h'")
    cli("queues", "pause", "mail", "--reason", "provider is down")
    facts = cli("status", "--json").json
    (trouble,) = facts["troubles"]
    assert trouble["trouble"].startswith("mail is paused for ")
    assert trouble["trouble"].endswith(": provider is down")
    assert trouble["advice"] == "jobctl queues resume mail"


def test_status_when_nobody_leads_or_serves(cli: Cli, connection: Connection) -> None:
    """What is not done at all comes before what is done late."""
    put_session(connection, 1, "alpha", queues=["reports"])
    put(connection, queue="mail")
    words = [one["trouble"] for one in cli("status", "--json").json["troubles"]]
    assert words[0] == "mail is served by no host"
    assert words[1].startswith("nobody leads")


def test_hosts(cli: Cli, connection: Connection) -> None:
    """One line each; JSON has everything."""
    put_session(connection, 1, "alpha", leader=True, queues=["mail", "reports"], types=["send"])
    put_session(connection, 2, "beta", dead=True, dead_because="lease expired")
    assert cli("hosts", "-o", "name").out == "alpha\nbeta\n"
    first, second = cli("hosts", "--json").json
    assert (first["state"], first["leader"], first["types"]) == ("working", True, ["send"])
    assert (second["state"], second["dead_because"]) == ("dead", "lease expired")
    assert "mail,reports" in cli("hosts").out


def test_drain_here_waits_until_nothing_runs(bare_cli: Cli, host: Host) -> None:
    """No database is needed; 124 when time is over; the supervisor stays, drained."""
    late = bare_cli("drain", "--wait", "--timeout", "0.1s")
    assert late.code == 124
    assert "still runs 2 jobs" in late.err
    listed = [line[10:] for line in late.err.splitlines() if line.startswith("jobctl:   ")]
    assert listed == [
        "send\\x1b #41 on alpha:2, for 3m20s",
        "send\\x1b #40 on alpha:1, for 1m40s",
    ]
    assert "jobctl undrain" in late.err
    threading.Timer(0.3, lambda: setattr(host, "busy", 0)).start()
    ran = bare_cli("drain", "--wait", "--timeout", "30s", "--json")
    assert ran.code == 0
    assert (ran.json[0]["draining"], ran.json[0]["busy"]) == (True, 0)
    assert bare_cli("drain").out.split()[-4:] == ["alpha", str(os.getpid()), "drained", "0"]
    assert bare_cli("undrain", "--json").json[0]["draining"] is False


def test_drain_and_exit_waits_until_it_has_left(bare_cli: Cli, host: Host) -> None:
    """Even if nothing runs any more: the next one needs its place."""
    host.busy = 0
    threading.Timer(0.3, host.leave).start()
    ran = bare_cli("drain", "--exit", "--wait", "--timeout", "30s")
    assert ran.code == 0
    assert host.asked[0] == "exit"


def test_a_drain_that_takes_long_says_how_far_it_is(
    bare_cli: Cli, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody watches: a line now and then, and only if it says something new."""
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    threading.Timer(0.5, lambda: setattr(host, "busy", 1)).start()
    threading.Timer(1.0, lambda: setattr(host, "busy", 0)).start()
    ran = bare_cli("drain", "--wait", "--timeout", "30s", "--json")
    assert ran.code == 0
    said = [line for line in ran.err.splitlines() if "still run" in line]
    assert [line[:17] for line in said] == ["2 jobs still run;", "1 job still runs;"]


def test_reload_returns_when_it_is_decided(bare_cli: Cli, host: Host) -> None:
    """0 if the new code is taken, whoever still ends a job with the old one; 124 before."""
    late = bare_cli("reload", "--timeout", "0.1s")
    assert late.code == 124 and "not imported yet" in late.err
    host.reload |= {"number": 2, "decided": True, "step": "relieving", "old": 1}
    ran = bare_cli("reload", "--json")
    assert ran.code == 0
    assert (ran.json[0]["decided"], ran.json[0]["old"]) == (True, 1)
    host.reload |= {"number": 3}
    late = bare_cli("reload", "--wait", "--timeout", "0.3s")
    assert late.code == 124 and "1 slots still run older code" in late.err
    host.reload |= {"number": 4}
    threading.Timer(0.3, lambda: host.reload.update(old=0)).start()
    assert bare_cli("reload", "--wait", "--timeout", "30s").code == 0


def test_reload_waits_for_its_own(bare_cli: Cli, host: Host) -> None:
    """Another one was just decided; that says nothing about the code that is there now."""
    host.asked.append("reload")
    host.reload |= {"number": 1, "decided": True, "step": "over"}
    threading.Timer(
        0.3, lambda: host.reload.update(number=2, failed="it died", error="ImportError: shop")
    ).start()
    ran = bare_cli("reload", "--timeout", "30s")
    assert ran.code == 1
    assert "the old code goes on: ImportError: shop" in ran.err


def test_nobody_is_here(bare_cli: Cli) -> None:
    """4, and where it looked."""
    ran = bare_cli("drain")
    assert ran.code == 4
    assert "run" in ran.err
    assert "--host" in ran.err


@as_root
def test_the_folder_of_another_user_is_named(bare_cli: Cli) -> None:
    """Else an operator would believe that nothing runs here."""
    with guarded_folder() as shared:
        folder = shared / "jobctl"
        folder.mkdir(mode=0o700)
        loaded = load(environ={"JOBCTL_RUNTIME_DIR": str(folder)})

        def ask() -> str:
            with pytest.raises(Failure) as failure:
                peers_here(loaded)
            return str(failure.value)

        assert f"{folder} is another user's: ask as that user, or with sudo" in acting_as(
            "nobody", ask
        )


def test_drain_there_goes_through_the_database(
    cli: Cli, connection: Connection, database: str
) -> None:
    """It returns when that host drains and holds no claim; others are left alone."""
    put_session(connection, 1, "alpha")
    put_session(connection, 2, "beta")
    job_id = put(connection, "running")
    assert cli("drain", "--host", "alpha").code == 0
    late = cli("drain", "--host", "alpha", "--wait", "--timeout", "0.1s")
    assert late.code == 124
    assert "alpha still holds 1 job" in late.err
    assert f"#{job_id} on alpha" in late.err
    assert "jobctl undrain --host alpha" in late.err

    def supervisor() -> None:
        with reading.connect(database, "jobctl") as its:
            until(
                lambda: (
                    its.execute(
                        "SELECT FROM session WHERE id = 1 AND drain_requested_at IS NOT NULL"
                    ).fetchone()
                    is not None
                )
            )
            its.execute("UPDATE session SET draining = true WHERE id = 1")
            its.execute("DELETE FROM claim WHERE job_id = %s", (job_id,))

    thread = threading.Thread(target=supervisor)
    thread.start()
    ran = cli("drain", "--host", "alpha", "--wait", "--timeout", "30s", "--json")
    thread.join()
    assert ran.code == 0
    assert ran.json == [{"host": "alpha", "session": 1, "draining": True, "claims": 0}]
    requests = connection.execute("SELECT id FROM session WHERE drain_requested_at IS NOT NULL")
    assert [row["id"] for row in requests] == [1]


def test_a_host_that_dies_while_it_drains_is_a_failure(cli: Cli, connection: Connection) -> None:
    """Its jobs are not finished: nobody may take the machine for drained."""
    put_session(connection, 1, "alpha")
    put(connection, "running")
    threading.Timer(
        0.3, lambda: connection.execute("UPDATE session SET dead = true WHERE id = 1")
    ).start()
    ran = cli("drain", "--all", "--wait", "--timeout", "30s")
    assert ran.code == 1
    assert "alpha has gone silent" in ran.err


def test_undrain_there(cli: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 and what to do for a host that was drained on the spot and does not listen."""
    monkeypatch.setattr(drain_command, "HEARD_SECONDS", 0.1)
    put_session(connection, 1, "alpha", drain_requested_at=datetime.now(UTC))
    put_session(connection, 2, "beta", draining=True)
    assert cli("undrain", "--host", "alpha").code == 0
    ran = cli("undrain", "--all", "--reason", "deployed")
    assert ran.code == 5
    assert "beta goes on draining" in ran.err
    assert cli("undrain", "--host", "nobody").code == 4
    left = connection.execute("SELECT FROM session WHERE drain_requested_at IS NOT NULL").fetchone()
    assert left is None


def test_a_host_whose_slots_are_not_ready_does_not_pass_for_working(
    cli: Cli, connection: Connection
) -> None:
    """Its app hangs or fails when it is imported: it holds a lease and runs nothing."""
    put_session(connection, 1, "alpha", ready=0)
    assert cli("hosts", "--json").json[0]["state"] == "not ready"
