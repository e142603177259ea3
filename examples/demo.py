"""The main job by itself: `make demo`.

A story on the terminal, told while it happens, on an embedded PostgreSQL in a temporary place:
ordinary jobs run; one hangs in C code and is killed at its deadline; one loses its process to
kill -9 and runs again; one fails for good and is found among the dead letters; a cron fires once;
a drain ends it.
Exits 0 only if every number adds up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from shop import jobs  # noqa: E402

from jobctl.store.embedded import throw_away  # noqa: E402 - after the path
from jobctl.store.migrate import migrate  # noqa: E402
from jobctl.supervisor.control import peers  # noqa: E402

SLOTS = 4
ORDINARY = 40
PATIENCE = 60.0

Connection = psycopg.Connection[Any]


class Story:
    """Says what happens, with the seconds since the beginning."""

    def __init__(self) -> None:
        self._begun = monotonic()

    def say(self, text: str) -> None:
        """One line."""
        print(f"{monotonic() - self._begun:6.1f} s  {text}", flush=True)

    def quote(self, text: str) -> None:
        """What somebody else has said, set apart."""
        for line in text.splitlines():
            print(f"          | {line}", flush=True)


def main() -> int:
    """Returns the exit code."""
    story = Story()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobctl-demo-")))
        story.say("starting an embedded PostgreSQL in a temporary place")
        dsn = stack.enter_context(throw_away()).dsn()
        applied = migrate(dsn)
        story.say(f"applied {len(applied)} migrations to schema jobctl")
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        supervisor = stack.enter_context(_supervisor(dsn, folder))
        story.say(f"started a supervisor with {SLOTS} slots, pid {supervisor.pid}")
        figures = _tell(story, connection, supervisor, folder)
        return _close(story, connection, figures)


def _tell(
    story: Story, connection: Connection, supervisor: subprocess.Popen[bytes], folder: Path
) -> dict[str, float]:
    figures: dict[str, float] = {}

    # Ordinary jobs, one transaction that is rolled back, and one key used twice.
    with connection.transaction():
        ids = [
            jobs.send_invoice_email.enqueue(connection, invoice_id=1000 + at, key=f"invoice:{at}")
            for at in range(ORDINARY)
        ]
    again = jobs.send_invoice_email.enqueue(connection, invoice_id=1000, key="invoice:0")
    _check(again == ids[0], "the same key gave another job")
    with connection.transaction(force_rollback=True):
        ghost = jobs.send_invoice_email.enqueue(connection, invoice_id=666)
    begun = monotonic()
    _until(lambda: _count(connection, "succeeded") == ORDINARY, "the ordinary jobs")
    story.say(f"{ORDINARY} invoices were mailed in {monotonic() - begun:.1f} s; the one that was")
    story.say("enqueued twice with the same key was one job, the one rolled back never was")
    _check(_job(connection, ghost) is None, "a job that was rolled back exists")

    # A hang in C code that holds the interpreter's lock, with siblings that must not notice.
    hung = jobs.render_thumbnail.enqueue(connection, image="broken.tiff")
    _until(lambda: _state(connection, hung) == "running", "the hanging job")
    story.say("a thumbnail hangs in C code that nothing inside its process can interrupt;")
    story.say("its deadline is 2 s, and meanwhile its siblings go on")
    with connection.transaction():
        for at in range(ORDINARY):
            jobs.send_invoice_email.enqueue(connection, invoice_id=2000 + at)
    _until(lambda: _count(connection, "succeeded") == 2 * ORDINARY, "its siblings")
    _until(lambda: _state(connection, hung) == "dead", "the kill at the deadline")
    attempt = _attempts(connection, hung)[0]
    figures["past_deadline"] = float(attempt["seconds"]) - 2.0
    story.say(f"killed {figures['past_deadline']:.2f} s past its deadline ({attempt['outcome']}).")
    story.say("Where it hung:")
    story.quote("\n".join((attempt["stack"] or "no stack").splitlines()[:6]))
    _check("sleep" in (attempt["stack"] or "") or "render_thumbnail" in (attempt["stack"] or ""),
           "the stack does not name the guilty line")  # fmt: skip

    # kill -9 of one process in the middle of its job.
    mark = folder / "report.started"
    report = jobs.build_report.enqueue(connection, started=str(mark), wait=True)
    _until(mark.exists, "the report")
    victim = _slot_of(report, folder)
    others = _slots(folder) - {victim}
    story.say(f"a report runs in process {victim}; that process is killed with -9")
    os.kill(victim, signal.SIGKILL)
    killed_at = monotonic()
    _until(lambda: len(_slots(folder)) == SLOTS and victim not in _slots(folder), "a new slot")
    figures["replaced"] = monotonic() - killed_at
    story.say(f"a new process took its place after {figures['replaced']:.2f} s")
    _until(lambda: _state(connection, report) == "succeeded", "the report's second attempt")
    figures["recovered"] = monotonic() - killed_at
    story.say(f"and the report was built {figures['recovered']:.1f} s after the kill, on attempt 2")
    _check(mark.read_text() == "1\n2\n", "the report did not run exactly twice")
    _check(others <= _slots(folder), "a sibling was disturbed")

    # A failure for good, found among the dead letters and replayed there.
    lost = jobs.send_welcome.enqueue(connection, customer="Zoë", subject="customer:17")
    _until(lambda: _state(connection, lost) == "dead", "the dead letter")
    job = _job(connection, lost)
    assert job is not None  # noqa: S101 - it has a state
    story.say("a welcome mail failed for good and waits among the dead letters:")
    story.quote(f"{job['type']} #{lost}  {job['failure_class']}  {job['last_error_code']}")
    story.quote(f"{job['last_error']}  (about {job['subject']})")

    # A cron, planned for a moment that comes only once a year.
    (moment,) = connection.execute(
        "SELECT date_trunc('second', clock_timestamp() + interval '3 s') AT TIME ZONE 'UTC'"
    ).fetchone() or (None,)
    _check(moment is not None, "the database has no clock")
    planned = f"{moment:%S %M %H %d %m} *"
    story.say(f"jobctl cron add stocktaking '{planned}' count_stock: in three seconds")
    added = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "jobctl", "cron", "add", "stocktaking", planned, "count_stock",
         '{"shelf": "B7"}', "--reason", "the demo"],
        env={**os.environ, "JOBCTL_DSN": connection.info.dsn},
        check=False,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _check(added.returncode == 0, f"jobctl cron add exited with {added.returncode}")
    _until(lambda: bool(_fires(connection)), "the cron")
    job_id, lag = _fires(connection)[0]
    _until(lambda: _state(connection, job_id) == "succeeded", "the stocktaking")
    figures["cron_lag"] = lag
    story.say(
        f"a cron fires once: planned for {moment:%H:%M:%S} UTC, fired {lag * 1000:.0f} ms late"
    )

    # The end: a drain, while something still runs.
    last = folder / "last.started"
    running = jobs.build_report.enqueue(connection, started=str(last))
    _until(last.exists, "the last job")
    story.say("jobctl drain --wait --exit: nothing more is claimed, what runs may finish")
    begun = monotonic()
    drained = subprocess.run(
        [sys.executable, "-m", "jobctl", "drain", "--wait", "--exit", "--timeout", "30s"],
        env={**os.environ, "JOBCTL_RUNTIME_DIR": str(folder / "run")},
        check=False,
        stdin=subprocess.DEVNULL,
    )
    _check(drained.returncode == 0, f"the drain exited with {drained.returncode}")
    code = supervisor.wait(timeout=PATIENCE)
    figures["drained"] = monotonic() - begun
    _check(code == 0, f"the supervisor exited with {code}")
    story.say(f"drained and gone after {figures['drained']:.1f} s, exit code {code}")
    _check(_state(connection, running) == "succeeded", "the drain lost the job that was running")
    return figures


def _close(story: Story, connection: Connection, figures: dict[str, float]) -> int:
    """The closing table; every number of it is checked."""
    rows = connection.execute(
        "SELECT type, count(*), count(*) FILTER (WHERE state = 'succeeded'),"
        " count(*) FILTER (WHERE state = 'dead'), sum(attempt), sum(crashes)"
        " FROM jobctl.jobs GROUP BY type ORDER BY type"
    ).fetchall()
    want = [
        ("build_report", 2, 2, 0, 3, 1),
        ("count_stock", *_counted(connection)),
        ("render_thumbnail", 1, 0, 1, 1, 0),
        ("send_invoice_email", 2 * ORDINARY, 2 * ORDINARY, 0, 2 * ORDINARY, 0),
        ("send_welcome", 1, 0, 1, 1, 0),
    ]
    story.say("the books:")
    print()
    names = ("job type", "enqueued", "succeeded", "dead", "attempts", "crashes")
    print("  {:20} {:>8} {:>9} {:>5} {:>8} {:>7}".format(*names))
    for type_, *numbers in rows:
        count, succeeded, dead, attempts, crashes = (int(each) for each in numbers)
        print(f"  {type_:20} {count:8} {succeeded:9} {dead:5} {attempts:8} {crashes:7}")
    print()
    print(f"  killed past the deadline by   {figures['past_deadline']:6.2f} s")
    print(f"  process replaced after        {figures['replaced']:6.2f} s")
    print(f"  job of the killed process ran {figures['recovered']:6.2f} s after the kill")
    print(f"  cron fired after its time by  {figures['cron_lag']:6.2f} s")
    print(f"  drain took                    {figures['drained']:6.2f} s")
    print()
    misplaced = connection.execute("SELECT * FROM jobctl.placement_violations()").fetchall()
    sessions = connection.execute("SELECT * FROM jobctl.session").fetchall()
    got = [(row[0], *(int(each) for each in row[1:])) for row in rows]
    _check(got == want, f"the numbers do not add up: {got} instead of {want}")
    _check(len(_fires(connection)) == 1, f"the cron fired {len(_fires(connection))} times")
    _check(not misplaced, f"jobs are in no place, or in two: {misplaced}")
    _check(not sessions, f"the supervisor left its session behind: {sessions}")
    story.say("every number adds up")
    return 0


@contextmanager
def _supervisor(dsn: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    log = folder / "supervisor.log"
    (folder / "run").mkdir(mode=0o700)
    environment = {
        **os.environ,
        "JOBCTL_DSN": dsn,
        "JOBCTL_RUNTIME_DIR": str(folder / "run"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-m", "jobctl", "run", "--app", "shop.jobs", "--slots", str(SLOTS),
               "--metrics-listen", "off"]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    try:
        yield process
    except BaseException:
        print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
        raise
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGQUIT)
            process.wait(timeout=30)


def _ask(folder: Path) -> Mapping[str, Any]:
    """What the supervisor says of itself, over its control socket."""
    (peer,) = peers([folder / "run"])
    return peer.ask("status")


def _slots(folder: Path) -> set[int]:
    ready = ("idle", "busy")
    return {one["pid"] for one in _ask(folder)["slots"] if one["stage"] in ready}


def _slot_of(job: int, folder: Path) -> int:
    (pid,) = [one["pid"] for one in _ask(folder)["slots"] if one["job"] == job]
    return int(pid)


def _job(connection: Connection, job: int) -> dict[str, Any] | None:
    row = connection.execute(
        "SELECT to_jsonb(j) FROM jobctl.jobs AS j WHERE id = %s", (job,)
    ).fetchone()
    return row[0] if row else None


def _state(connection: Connection, job: int) -> str | None:
    found = _job(connection, job)
    return found["state"] if found else None


def _attempts(connection: Connection, job: int) -> list[dict[str, Any]]:
    rows = connection.execute(
        "SELECT to_jsonb(a) || jsonb_build_object("
        "  'seconds', extract(epoch FROM ended_at - started_at))"
        " FROM jobctl.attempts AS a WHERE job_id = %s ORDER BY attempt",
        (job,),
    ).fetchall()
    return [row[0] for row in rows]


def _count(connection: Connection, state: str) -> int:
    row = connection.execute(
        "SELECT count(*) FROM jobctl.jobs WHERE state = %s", (state,)
    ).fetchone()
    return int(row[0]) if row else 0


def _fires(connection: Connection) -> list[tuple[int, float]]:
    """Of the story's cron: its job, and how late it was fired."""
    return connection.execute(
        "SELECT job_id, extract(epoch FROM fired_at - scheduled_for)::float8"
        " FROM jobctl.cron_fire WHERE name = 'stocktaking' AND result = 'fired'"
    ).fetchall()


def _counted(connection: Connection) -> tuple[int, ...]:
    """One, but two if the demo runs while it strikes three in Ho Chi Minh City."""
    row = connection.execute("SELECT count(*) FROM jobctl.cron_fire WHERE result = 'fired'")
    (times,) = row.fetchone() or (0,)
    return (times, times, 0, times, 0)


def _until(fact: Callable[[], bool], what: str) -> None:
    begun = monotonic()
    while not fact():
        if monotonic() - begun > PATIENCE:
            raise SystemExit(f"gave up waiting for {what} after {PATIENCE:g} s")
        sleep(0.02)


def _check(fact: bool, complaint: str) -> None:
    if not fact:
        raise SystemExit(f"this does not add up: {complaint}")


if __name__ == "__main__":
    sys.exit(main())
