"""Next steps with real supervisors: whatever dies, each step runs once, after what is before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.system.host import Host, Hosts, Jobs
from tests.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"


def ran(hosts: Hosts) -> list[str]:
    path = hosts.folder / "ran"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("how", ["raise", "exit", "kill the slot", "kill the supervisor"])
def test_steps_of_an_attempt_that_died_are_not_doubled(hosts: Hosts, jobs: Jobs, how: str) -> None:
    """They commit with the success: of the attempts before it nothing was ever there."""
    host = hosts.start("one", "--slots", "2", "--lease", "3s", app="step_jobs").ready()
    job = jobs.enqueue("enqueues_and_dies", {"how": how})
    if how.startswith("kill"):
        until((hosts.folder / "enqueued").exists, within=20, what="the first attempt")
        assert len(_types(jobs)) == 1
        if how == "kill the slot":
            slot = jobs.wait(job, "running")
            pid = until(lambda: _pid(host, job), within=20, what="the slot's pid")
            assert slot["attempt"] == 1
            _kill(pid)
        else:
            host.kill()
            host = hosts.start("one", "--slots", "2", "--lease", "3s", app="step_jobs").ready()
    assert jobs.wait(job, "succeeded", within=40)["attempt"] == 2
    until(lambda: len(ran(hosts)) == 2, within=20, what="both steps")
    assert ran(hosts) == ["first", "second"]
    assert _types(jobs) == [("enqueues_and_dies", 1), ("step", 2)]
    assert host.stop() == 0
    jobs.nothing_is_misplaced()


def _types(jobs: Jobs) -> list[tuple[str, int]]:
    rows = jobs.connection.execute("SELECT type, count(*) FROM jobctl.jobs GROUP BY 1 ORDER BY 1")
    return [(row["type"], row["count"]) for row in rows]


def _pid(host: Host, job: int) -> int:
    busy = [one for one in host.state()["slots"] if one["stage"] == "busy"]
    return int(busy[0]["pid"]) if busy else 0


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_a_step_that_is_refused_is_said(hosts: Hosts, jobs: Jobs) -> None:
    """The job is dead, with a class and a sentence; it is not lost, and does not run again."""
    hosts.start("one", "--slots", "1", app="step_jobs").ready()
    job = jobs.wait(jobs.enqueue("enqueues_nonsense"), "dead")
    assert job["failure_class"] == "unstorable_step"
    assert "there is no such job" in job["last_error"]


@pytest.mark.parametrize("how", ["succeed", "raise", "nonsense"])
def test_steps_of_a_transaction_of_the_jobs_own(hosts: Hosts, jobs: Jobs, how: str) -> None:
    """They are in that commit, or nowhere; the process may die right after it. What PostgreSQL
    refuses of them is raised in the handler, and nothing of the transaction stays."""
    hosts.start("one", "--slots", "2", app="step_jobs").ready()
    job = jobs.enqueue("commits_with_steps", {"how": how})
    assert jobs.wait(job, "succeeded", within=40)["attempt"] == (1 if how == "succeed" else 2)
    until(lambda: len(ran(hosts)) == 2, within=20, what="both steps")
    assert ran(hosts) == ["first", "second"]
    assert (hosts.folder / "refused").exists()
    assert _types(jobs) == [("commits_with_steps", 1), ("step", 2)]
    if how == "nonsense":
        assert "there is no such job" in jobs.attempts(job)[0]["error"]


def test_accounting_is_down_and_the_mail_is_sent_once(hosts: Hosts, jobs: Jobs) -> None:
    """invoice.created -> render_invoice_pdf -> send_invoice_email -> sync_invoice_to_accounting:
    the last is tried until it works, and what was done before it is not done again."""
    down = hosts.folder / "accounting-is-down"
    down.touch()
    environ = {"PYTHONPATH": str(EXAMPLES), "SHOP_FOLDER": str(hosts.folder)}
    host = hosts.start("one", "--slots", "4", app="shop.invoices", environ=environ).ready()
    pdf, mail, booking = _tell(hosts, 1842)
    until(
        lambda: jobs.job(booking)["attempt"] >= 2 and jobs.job(booking)["state"] == "retrying",
        within=30,
        what="two failures of accounting",
    )
    assert jobs.job(mail)["state"] == "succeeded"
    assert _tell(hosts, 1842) == [pdf, mail, booking]  # the same event again
    assert not (hosts.folder / "booked-1842").exists()
    down.unlink()
    assert jobs.wait(booking, "succeeded", within=60)["attempt"] >= 3
    assert (hosts.folder / "invoice-1842.pdf").exists()
    assert (hosts.folder / "booked-1842").exists()
    assert [jobs.job(job)["attempt"] for job in (pdf, mail)] == [1, 1]
    sent = [one for one in host.said("output") if "is on its way" in one["message"]]
    assert len(sent) == 1


def _tell(hosts: Hosts, invoice: int) -> list[int]:
    """As the web application would, in its transaction."""
    program = (
        "import os, psycopg; from shop.invoices import invoice_created\n"
        f"with psycopg.connect(os.environ['DSN']) as conn: print(*invoice_created(conn, {invoice}))"
    )
    environ = {"PYTHONPATH": str(EXAMPLES), "DSN": hosts.dsn}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    return [int(word) for word in said.stdout.split()]


def test_a_fan_in_over_two_hosts(hosts: Hosts, jobs: Jobs) -> None:
    """Hundreds of parents, finished by two supervisors at once: the child runs once, and last."""
    for name in ("one", "two"):
        hosts.start(name, "--slots", "2", app="step_jobs").ready()
    with psycopg.connect(hosts.dsn) as conn:
        rows = conn.execute(
            "SELECT job_id FROM jobctl.enqueue_many((SELECT jsonb_agg(jsonb_build_object("
            "'type', 'step', 'args', jsonb_build_object('name', 'parent')))"
            " FROM generate_series(1, 300)))"
        ).fetchall()
        parents = [row[0] for row in rows]
        row = conn.execute(
            "SELECT jobctl.enqueue('step', '{\"name\": \"child\"}', after => %s)", (parents,)
        ).fetchone()
        assert row is not None
    jobs.wait(row[0], "succeeded", within=60)
    assert ran(hosts) == ["parent"] * 300 + ["child"]
    jobs.nothing_is_misplaced()
