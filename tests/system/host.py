"""A host of its own for a test: a real supervisor, started like any other, and what it left."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from jobctl.supervisor.control import peers
from tests.waiting import until

APPS = Path(__file__).with_name("apps")
PROGRAM = (sys.executable, "-m", "jobctl")
NOTHING: Mapping[str, str] = {}
SABOTAGE = Path(__file__).with_name("sabotage.py")


class Host:
    """One supervisor process."""

    def __init__(
        self,
        dsn: str,
        folder: Path,
        name: str,
        *options: str,
        app: str = "work",
        program: Sequence[str] = PROGRAM,
        environ: Mapping[str, str] = NOTHING,
        without: str | None = None,
        prefix: Sequence[str] = (),
        terminal: int | None = None,
    ) -> None:
        """`without` a guard of jobctl's (`sabotage.py`); `prefix` is put before the command;
        `terminal` is its controlling terminal, in a session of its own."""
        self.name = name
        self.folder = folder / name
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.log = self.folder / "log"
        if without is not None:
            program = (sys.executable, str(SABOTAGE), without)
        command = [
            *program, "run", "--app", app, "--host", name,
            "--metrics-listen", "127.0.0.1:0", "--runtime-dir", str(self.folder),
            "--log-format", "json", *options,
        ]  # fmt: skip
        environment = {
            **os.environ,
            "JOBCTL_DSN": dsn,
            "PYTHONPATH": os.pathsep.join([str(APPS), os.environ.get("PYTHONPATH", "")]),
            "JOBCTL_TEST_FOLDER": str(folder),
            "JOBCTL_TEST_WITHOUT": without or "",
            **environ,
        }
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=terminal is not None,
                preexec_fn=None if terminal is None else _take_terminal,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def ready(self, within: float = 60) -> Host:
        """Returns once it is ready."""
        until(
            lambda: self.said("ready") or self.process.poll() is not None,
            within=within,
            what="ready",
        )
        assert self.process.poll() is None, self.log.read_text()
        return self

    def said(self, event: str) -> list[dict[str, Any]]:
        """Its log lines about this event."""
        lines = self.log.read_text(errors="replace").splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [one for one in events if one.get("event") == event]

    def state(self) -> dict[str, Any]:
        """What it says of itself over its control socket."""
        mine = [peer for peer in peers([self.folder]) if str(self.pid) in peer.path.name]
        return dict(mine[0].ask("status"))

    def ask(self, command: str) -> dict[str, Any]:
        """Any other command."""
        mine = [peer for peer in peers([self.folder]) if str(self.pid) in peer.path.name]
        return dict(mine[0].ask(command))

    def slots(self) -> dict[int, int]:
        """Slot number to pid, of those that are ready."""
        return {
            one["slot"]: one["pid"]
            for one in self.state()["slots"]
            if one["stage"] in ("idle", "busy")
        }

    def get(self, path: str) -> tuple[int, str]:
        """A page of its HTTP server."""
        address = self.said("listening")[-1]["address"]  # of its newest life
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM, within: float = 30) -> int:
        """Asks it to leave and returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=within)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Whatever the test has left."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.kill()


class Hosts:
    """Starts hosts, and ends them with the test."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self._all: list[Host] = []

    def start(self, name: str, *options: str, app: str = "work", **how: Any) -> Host:
        """Started, not yet ready. `how` it is started: `dsn`, `program`, `environ`."""
        dsn = how.pop("dsn", self.dsn)
        host = Host(dsn, self.folder, name, *options, app=app, **how)
        self._all.append(host)
        return host

    def end(self) -> None:
        for host in self._all:
            host.end()


class Jobs:
    """Enqueues, and looks at what became of it."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)

    def enqueue(self, type_: str, args: dict[str, Any] | None = None, **options: Any) -> int:
        extra = "".join(f", {name} => %({name})s" for name in options)
        row = self.connection.execute(
            f"SELECT jobctl.enqueue(%(type)s, %(args)s::jsonb{extra}) AS id",
            {"type": type_, "args": json.dumps(args or {}), **options},
        ).fetchone()
        assert row is not None
        return int(row["id"])

    def job(self, job: int) -> dict[str, Any]:
        row = self.connection.execute("SELECT * FROM jobctl.jobs WHERE id = %s", (job,)).fetchone()
        assert row is not None, f"job {job} is gone"
        return row

    def attempts(self, job: int) -> list[dict[str, Any]]:
        return self.connection.execute(
            "SELECT * FROM jobctl.attempts WHERE job_id = %s ORDER BY ended_at", (job,)
        ).fetchall()

    def wait(self, job: int, state: str, within: float = 20) -> dict[str, Any]:
        """The job, once it is in this state."""
        until(
            lambda: self.job(job)["state"] == state,
            within=within,
            what=f"job {job} to be {state}",
        )
        return self.job(job)

    def nothing_is_misplaced(self) -> None:
        rows = self.connection.execute("SELECT * FROM jobctl.placement_violations()").fetchall()
        assert rows == []


@contextmanager
def jobs_of(dsn: str) -> Iterator[Jobs]:
    jobs = Jobs(dsn)
    try:
        yield jobs
    finally:
        jobs.connection.close()


def _take_terminal() -> None:
    """Standard input becomes the controlling terminal of the new session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def alive(pids: Sequence[int]) -> list[int]:
    """Of these processes, those that run (a zombie does not)."""
    found = []
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if stat.rpartition(")")[2].split()[0] != "Z":
            found.append(pid)
    return found
