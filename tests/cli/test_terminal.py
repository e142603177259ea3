"""The real command, with a terminal, a pipe or a Ctrl-C at its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from jobctl.store.reading import Connection
from tests.cli.terminals import JOBCTL, environment, on_a_terminal
from tests.cli.test_hosts import Host
from tests.store.standing import put
from tests.waiting import until


def test_a_bulk_action_asks_and_takes_no_for_an_answer(
    database: str, connection: Connection
) -> None:
    """The count and a sample first; anything but yes changes nothing."""
    for _ in range(7):
        put(connection, "dead")
    words = ["dead", "replay", "--all"]
    with on_a_terminal(words, environment(database)) as (terminal, process):
        terminal.read_until("Replay 7 jobs? [y/N]")
        assert "7 jobs: #" in terminal.screen
        terminal.type("n\n")
        assert terminal.ended(process) == 130
    assert connection.execute("SELECT count(*) AS n FROM dead").fetchone() == {"n": 7}
    with on_a_terminal(words, environment(database)) as (terminal, process):
        terminal.read_until("[y/N]")
        terminal.type("y\n")
        terminal.read_until("7 jobs queued again.")
        assert terminal.ended(process) == 0
    assert connection.execute("SELECT count(*) AS n FROM dead").fetchone() == {"n": 0}


def test_whoever_changes_very_many_types_their_number(
    database: str, connection: Connection
) -> None:
    """A y is typed in passing; a number was read."""
    connection.execute(
        "SELECT enqueue_many((SELECT jsonb_agg(jsonb_build_object('type', 'send', 'delay_seconds',"
        " 3600)) FROM generate_series(1, 1500)))"
    )
    words = ["jobs", "retry", "--all"]
    with on_a_terminal(words, environment(database)) as (terminal, process):
        terminal.read_until("Type 1500 to retry them")
        terminal.type("y\n")
        assert terminal.ended(process) == 130
    assert connection.execute("SELECT count(*) AS n FROM ready").fetchone() == {"n": 0}
    with on_a_terminal(words, environment(database)) as (terminal, process):
        terminal.read_until("Type 1500 to retry them")
        terminal.type("1500\n")
        terminal.read_until("1500 jobs queued again.")
        assert terminal.ended(process) == 0
        assert "1500 of 1500" in terminal.screen  # a bar that has come to its end


def test_ctrl_c_ends_a_bulk_action_behind_a_batch_and_says_how_far_it_came(
    database: str, connection: Connection
) -> None:
    """What it says is what is in the database; run again it goes on."""
    for _ in range(10):
        put(connection, "dead")
    words = ["dead", "replay", "--all", "--yes", "--rate", "60/m", "--json"]
    process = subprocess.Popen(
        [*JOBCTL, *words], env=environment(database), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: connection.execute("SELECT id FROM audit").fetchone(), what="the first batch")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err
    moved = json.loads(out)["queued"]
    assert 0 < len(moved) < 10
    assert f"Stopped: {10 - len(moved)} job" in err
    rows = connection.execute("SELECT job_id FROM ready ORDER BY job_id").fetchall()
    assert [row["job_id"] for row in rows] == sorted(moved)


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_are_for_terminals_and_for_those_who_like_them(
    database: str, connection: Connection, no_color: str
) -> None:
    """NO_COLOR turns them off; the words are the same."""
    put(connection, "dead")
    environ = environment(database, **({"NO_COLOR": no_color} if no_color else {}))
    with on_a_terminal(["jobs", "list"], environ) as (terminal, process):
        terminal.read_until("dead")
        terminal.ended(process)
        assert ("\x1b[31m" in terminal.screen) is not bool(no_color)


def test_a_long_last_column_gives_way_to_the_window(database: str, connection: Connection) -> None:
    """On a terminal; a pipe gets all of it."""
    put(connection, "dead", last_error="x" * 500)
    with on_a_terminal(["jobs", "list"], environment(database)) as (terminal, process):
        terminal.read_until("…")
        terminal.ended(process)
    piped = subprocess.run(
        [*JOBCTL, "jobs", "list"], env=environment(database), capture_output=True, check=True
    )
    assert b"x" * 500 in piped.stdout


def test_ctrl_c_ends_a_watch_quietly(database: str) -> None:
    """130, and no traceback."""
    words = ["status", "--watch=0.1s"]
    with on_a_terminal(words, environment(database)) as (terminal, process):
        terminal.read_until("\x1b[H\x1b[J")
        process.send_signal(signal.SIGINT)
        assert terminal.ended(process) == 130
        assert "Traceback" not in terminal.screen


def test_a_reader_that_has_enough_is_no_failure(database: str, connection: Connection) -> None:
    """`jobctl jobs list | head -1`: no traceback, no message, exit 0."""
    for _ in range(3):
        put(connection, "dead", last_error="x" * 4000)
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [*JOBCTL, "jobs", "list", "--json"], env=environment(database), stdout=writing,
        stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (process.returncode, process.stderr) == (0, b"")


def test_psql_opens_the_same_database(database: str, connection: Connection) -> None:
    """With our schema in its path, and nothing secret among its arguments."""
    job_id = put(connection)
    ran = subprocess.run(
        [*JOBCTL, "db", "psql", "--", "-XAtc", "SELECT id FROM job"],
        env=environment(database), capture_output=True, check=True,
    )  # fmt: skip
    assert ran.stdout.decode().strip() == str(job_id)


def test_a_drain_shows_how_far_it_is(database: str, tmp_path: Path) -> None:
    """One line, written over, and gone when it is over."""
    folder = tmp_path / "run"
    with (
        Host(folder) as host,
        on_a_terminal(
            ["drain", "--wait"], environment(database, JOBCTL_RUNTIME_DIR=str(folder))
        ) as (terminal, process),
    ):
        terminal.read_until("2 jobs still run; the longest is send\\x1b #41 on alpha:2")
        host.busy = 1
        terminal.read_until("\r\x1b[K1 job still runs")
        host.busy = 0
        terminal.read_until("drained")
        assert process.wait(timeout=20) == 0
