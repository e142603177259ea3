"""`jobctl enqueue` and `jobctl jobs`: in, seen, waited for, run again."""

from __future__ import annotations

import threading
from datetime import datetime

import pytest

from jobctl.store.reading import Connection
from tests.cli.conftest import Cli
from tests.store.standing import put, violations


def test_enqueue_prints_the_id(cli: Cli, connection: Connection) -> None:
    """Alone, for `$(...)`; as `{"id": ...}` in JSON; a key gives the first job's."""
    ran = cli("enqueue", "send", '{"invoice_id": 1842}', "--key", "invoice:1842")
    assert (ran.code, ran.err) == (0, "")
    job_id = int(ran.out)
    assert cli("enqueue", "send", "--key", "invoice:1842", "-o", "json").json == {"id": job_id}
    shown = cli("jobs", "show", job_id, "--json").json
    assert shown["args"] == {"invoice_id": 1842}
    assert shown["state"] == "queued"


def test_enqueue_takes_everything_that_a_job_can_have(cli: Cli) -> None:
    """Queue, priority, subject, delay, time-out, attempts; arguments from stdin."""
    job_id = cli(
        "enqueue", "send", "-", "--subject", "customer:7", "--queue", "mail", "--priority", 3,
        "--delay", "1h", "--max-attempts", 2, "--timeout", "90s", stdin='{"to": "ann"}',
    ).out.strip()  # fmt: skip
    shown = cli("jobs", "show", job_id, "--json").json
    assert shown["args"] == {"to": "ann"}
    assert (shown["queue"], shown["priority"], shown["subject"]) == ("mail", 3, "customer:7")
    assert (shown["state"], shown["max_attempts"]) == ("scheduled", 2)
    due = datetime.fromisoformat(shown["run_at"]) - datetime.fromisoformat(shown["created_at"])
    assert due.total_seconds() == 3600
    job_id = cli("enqueue", "send", "--run-at", "2100-01-01T00:00+07:00").out.strip()
    assert cli("jobs", "show", job_id, "--json").json["run_at"] == "2099-12-31T17:00:00Z"


def test_enqueue_says_what_is_wrong_with_a_job(cli: Cli) -> None:
    """2: the command line asked for something that cannot be."""
    for words, why in (
        (["send", '{"x": "' + "a" * 70_000 + '"}'], "bytes"),
        (["send", "--key", ""], "key"),
        (["", "{}"], "type"),
    ):
        ran = cli("enqueue", *words)
        assert (ran.code, ran.out) == (2, "")
        assert why in ran.err


def test_list_shows_what_the_filters_choose(cli: Cli, connection: Connection) -> None:
    """In each of the formats; names feed other commands."""
    dead = put(connection, "dead", type="send", last_error="boom\nsecond line", key="k")
    queued = put(connection, "queued", type="other", queue="reports")
    assert cli("jobs", "list", "-o", "name").out == f"{queued}\n{dead}\n"
    assert cli("jobs", "list", "--queue", "reports", "-o", "name").out == f"{queued}\n"
    assert cli("jobs", "list", "--state", "dead", "-o", "name").out == f"{dead}\n"
    assert cli("jobs", "list", "--type", "send", "--error", "bo*", "-o", "name").out == f"{dead}\n"
    assert cli("jobs", "list", "--since", "1h", "--key", "k", "-o", "name").out == f"{dead}\n"
    assert cli("jobs", "list", "--until", "1h", "-o", "name").out == ""
    rows = cli("jobs", "list", "-o", "jsonl").out.splitlines()
    assert len(rows) == 2
    (row,) = cli("jobs", "list", "--state", "dead", "--json").json
    assert (row["id"], row["last_error"]) == (dead, "boom\nsecond line")
    assert row["created_at"].endswith("Z")
    table = cli("jobs", "list").out.splitlines()
    assert table[0].split() == ["ID", "TYPE", "QUEUE", "STATE", "ATTEMPT", "WHEN", "KEY", "ERROR"]
    assert "boom" in table[2]
    assert "second line" not in table[2]


def test_a_list_says_how_to_go_on(cli: Cli, connection: Connection) -> None:
    """On stderr, so that pipes see only jobs."""
    made = [put(connection) for _ in range(3)]
    first = cli("jobs", "list", "--limit", 2)
    assert f"--after {made[1]}" in first.err
    rest = cli("jobs", "list", "--limit", 2, "--after", made[1], "-o", "name")
    assert (rest.out, rest.err) == (f"{made[0]}\n", "")


def test_what_jobs_carry_cannot_steer_a_terminal(cli: Cli, connection: Connection) -> None:
    """Escape sequences, line breaks and the like are written out."""
    evil = "\x1b[2Jgone\r\x9b31m\u202eabc"
    job_id = put(connection, "dead", type="a\tb", queue="q", subject=evil, last_error=evil)
    for words in (["jobs", "list"], ["jobs", "show", job_id], ["dead", "list"], ["status"]):
        ran = cli(*words)
        assert ran.code == 0
        for character in "\x1b\r\x9b\u202e\t":
            assert character not in ran.out
    assert "\\x1b[2Jgone" in cli("jobs", "show", job_id).out


def test_show_tells_a_job_s_story(cli: Cli, connection: Connection) -> None:
    """What it is, where it stands, and every attempt with its stack."""
    job_id = put(connection, "retrying", args='{"a": [1, 2]}', attempt=1, last_error="boom")
    connection.execute(
        "INSERT INTO attempt (job_id, attempt, outcome, host, slot, started_at, ended_at,"
        " error_class, error, stack, exit_reason)"
        " VALUES (%s, 1, 'timeout', 'alpha', 3, now() - interval '30 s', now(), 'HardTimeout',"
        " 'too long', E'File \"x.py\"\\n  sleep()', 'killed by the supervisor')",
        (job_id,),
    )
    text = cli("jobs", "show", job_id).out
    assert text.startswith(f"#{job_id} send  retrying  attempt 1 of 5\n")
    for piece in (
        'args                 {"a":[1,2]}', "attempt 1  timeout after 30s on alpha:3",
        "HardTimeout: too long", "killed by the supervisor", '  File "x.py"\n    sleep()',
    ):  # fmt: skip
        assert piece in text
    shown = cli("jobs", "show", job_id, "--json").json
    assert shown["attempts"][0]["outcome"] == "timeout"
    missing = cli("jobs", "show", job_id + 1)
    assert (missing.code, missing.out) == (4, "")
    assert f"no job #{job_id + 1}" in missing.err


def test_wait_ends_as_the_jobs_do(cli: Cli, connection: Connection) -> None:
    """0 succeeded, 1 dead or cancelled, 4 none, 124 when time is over."""
    done = put(connection, "succeeded")
    dead = put(connection, "dead")
    cancelled = put(connection, "cancelled")
    queued = put(connection)
    assert cli("jobs", "wait", done).code == 0
    assert cli("jobs", "wait", done, dead).code == 1
    assert cli("jobs", "wait", cancelled).code == 1
    assert cli("jobs", "wait", 10**9).code == 4
    late = cli("jobs", "wait", queued, "--timeout", "0.1s")
    assert (late.code, late.out) == (124, "")
    assert f"#{queued} is queued" in late.err


def test_wait_returns_when_the_job_is_done(cli: Cli, connection: Connection) -> None:
    """It looks again and again; what it prints is how the job ended."""
    job_id = put(connection)

    def finish() -> None:
        connection.execute(
            "WITH gone AS (DELETE FROM job WHERE id = %(id)s RETURNING *), left_ AS ("
            " DELETE FROM ready WHERE job_id = %(id)s)"
            " INSERT INTO history (id, type, queue, priority, args, schema_version, attempt,"
            " crashes, run_at, created_at, finished_at, state)"
            " SELECT id, type, queue, priority, args, schema_version, 1, 0, run_at, created_at,"
            " now(), 'succeeded' FROM gone",
            {"id": job_id},
        )

    threading.Timer(0.2, finish).start()
    ran = cli("jobs", "wait", job_id, "--timeout", "30s", "-o", "json")
    assert ran.code == 0
    assert ran.json[0]["state"] == "succeeded"


def test_retry_moves_each_as_its_state_wants(cli: Cli, connection: Connection) -> None:
    """Dead ones begin anew, waiting ones are due now, others are refused with a reason."""
    dead = put(connection, "dead", attempt=5)
    retrying = put(connection, "retrying", attempt=2)
    done = put(connection, "succeeded")
    ran = cli("jobs", "retry", dead, f"#{retrying}", done, "--json", "--reason", "again")
    assert ran.code == 5
    assert sorted(ran.json["queued"]) == [dead, retrying]
    assert ran.json["refused"] == [
        {"id": done, "because": f"#{done} is succeeded, not dead or scheduled or retrying."}
    ]
    attempts = {row["id"]: row["attempt"] for row in cli("jobs", "list", "--json").json}
    assert (attempts[dead], attempts[retrying]) == (0, 2)
    assert violations(connection) == []
    audit = connection.execute("SELECT action, count, reason, actor FROM audit").fetchall()
    assert {row["action"] for row in audit} == {"replay", "retry"}
    assert {row["reason"] for row in audit} == {"again"}
    assert all("@" in row["actor"] for row in audit)


@pytest.mark.parametrize("format_", ["table", "json", "jsonl", "name"])
def test_every_list_can_be_empty(cli: Cli, format_: str) -> None:
    """No error, and JSON that is still JSON."""
    for words in (["jobs", "list"], ["dead", "list"], ["hosts"], ["status"]):
        ran = cli(*words, "-o", format_)
        assert ran.code == 0
        if format_ == "json" and words != ["status"]:
            assert ran.json == []
