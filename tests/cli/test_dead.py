"""`jobctl dead`: many at once, but never by accident and never twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest

from jobctl.cli import batches, bulk
from jobctl.store import operating, reading
from jobctl.store.operating import Order
from jobctl.store.reading import Connection
from tests.cli.conftest import Cli
from tests.store.standing import put, violations


def _states(connection: Connection) -> dict[int, str]:
    rows = reading.find(connection, reading.JobFilter(), 1000)
    return {row["id"]: row["state"] for row in rows}


def test_list_by_death(cli: Cli, connection: Connection) -> None:
    """Who died last comes first; --since is about the death; pages go on with --until."""
    first, second, third = (put(connection, "dead", last_error="boom") for _ in range(3))
    now = datetime.now(UTC)
    for job_id, hours in ((first, 1), (second, 3), (third, 2)):
        connection.execute(
            "UPDATE dead SET dead_since = %s WHERE job_id = %s",
            (now - timedelta(hours=hours), job_id),
        )
    assert cli("dead", "list", "-o", "name").out.split() == [str(first), str(third), str(second)]
    assert cli("dead", "list", "--since", "90m", "-o", "name").out.split() == [str(first)]
    page = cli("dead", "list", "--limit", 2)
    go_on = page.err.split("--until ")[1].strip()
    assert cli("dead", "list", "--until", go_on, "-o", "name").out.split() == [str(second)]
    assert "boom" in page.out


def test_replay_by_id_asks_nothing(cli: Cli, connection: Connection) -> None:
    """Whoever types an id means it. The second one to do so is told that it is done."""
    job_id = put(connection, "dead")
    ran = cli("dead", "replay", job_id)
    assert (ran.code, ran.out, ran.err) == (0, "", "1 job queued again.\n")
    again = cli("dead", "replay", job_id)
    assert again.code == 1
    assert f"#{job_id} is queued, not dead." in again.err
    assert cli("dead", "replay", 10**9).code == 4


def test_replay_by_filter_needs_a_yes(cli: Cli, connection: Connection) -> None:
    """Where nobody can answer, nothing happens without --yes."""
    wanted = [put(connection, "dead", queue="mail", last_error="SMTP 550") for _ in range(2)]
    other = put(connection, "dead", queue="mail", last_error="disk full")
    refused = cli("dead", "replay", "--error", "SMTP*")
    assert (refused.code, refused.out) == (2, "")
    assert "2 jobs" in refused.err
    assert "--yes" in refused.err
    assert set(_states(connection).values()) == {"dead"}
    planned = cli("dead", "replay", "--error", "SMTP*", "--dry-run", "--json")
    assert planned.code == 0
    assert sorted(planned.json["would_be_queued"]) == wanted
    assert planned.json["queued"] == []
    assert set(_states(connection).values()) == {"dead"}
    done = cli("dead", "replay", "--error", "SMTP*", "--yes", "--reason", "provider is back")
    assert (done.code, done.err) == (0, "2 jobs queued again.\n")
    assert _states(connection)[other] == "dead"
    assert violations(connection) == []
    (row,) = connection.execute("SELECT target, reason FROM audit").fetchall()
    assert row["target"]["asked"] == {"state": "dead", "error": "SMTP*"}
    assert row["reason"] == "provider is back"


def test_nothing_matches(cli: Cli) -> None:
    """That is no failure: a script may run it again."""
    ran = cli("dead", "replay", "--all", "--yes")
    assert (ran.code, ran.err) == (0, "No job matches; nothing was changed.\n")


def test_ids_come_through_a_pipe(cli: Cli, connection: Connection) -> None:
    """`jobctl dead list -o name | jobctl dead replay -`."""
    made = [put(connection, "dead") for _ in range(3)]
    names = cli("dead", "list", "-o", "name").out
    ran = cli("dead", "replay", "-", "-o", "name", stdin=names)
    assert ran.code == 0
    assert sorted(map(int, ran.out.split())) == made
    assert cli("dead", "replay", "-", stdin="").code == 2


def test_many_go_in_batches_the_oldest_first(
    cli: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is a transaction with a line of its own in the audit log."""
    monkeypatch.setattr(batches, "BATCH", 4)
    made = [put(connection, "dead") for _ in range(10)]
    for number, job_id in enumerate(made):
        connection.execute(
            "UPDATE dead SET dead_since = now() + %s * interval '1 s' WHERE job_id = %s",
            (number, job_id),
        )
    ran = cli("dead", "replay", "--all", "--yes", "-o", "name")
    assert ran.out.split() == [str(job_id) for job_id in made]
    counts = connection.execute("SELECT count FROM audit ORDER BY id").fetchall()
    assert [row["count"] for row in counts] == [4, 4, 2]


def test_more_than_one_command_takes(
    cli: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does what it has counted, says so, and can be run again."""
    monkeypatch.setattr(bulk, "LARGEST_COUNT", 2)
    for _ in range(3):
        put(connection, "dead")
    ran = cli("dead", "replay", "--all", "--yes")
    assert ran.code == 5
    assert "run it again" in ran.err
    assert cli("dead", "replay", "--all", "--yes").code == 0
    assert set(_states(connection).values()) == {"queued"}


def test_somebody_else_is_quicker(
    cli: Cli, connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the count and the deed: what is gone is told, the rest is done."""
    mine, theirs = put(connection, "dead"), put(connection, "dead")
    real = bulk._confirm

    def meanwhile(*how: object) -> None:
        operating.replay(connection, [theirs], Order("bob@ops"))
        real(*how)  # type: ignore[arg-type]

    monkeypatch.setattr(bulk, "_confirm", meanwhile)
    ran = cli("dead", "replay", "--all", "--yes", "--json")
    assert ran.code == 5
    assert ran.json["queued"] == [mine]
    assert ran.json["refused"] == [
        {"id": theirs, "because": f"#{theirs} is not dead any more but queued."}
    ]


def test_a_limit_takes_the_oldest_and_says_what_is_left(cli: Cli, connection: Connection) -> None:
    """A few first, to see whether it helps."""
    made = [put(connection, "dead") for _ in range(5)]
    for number, job_id in enumerate(made):
        connection.execute(
            "UPDATE dead SET dead_since = now() + %s * interval '1 s' WHERE job_id = %s",
            (number, job_id),
        )
    planned = cli("dead", "replay", "--all", "--limit", 2, "--dry-run")
    assert "2 jobs of 5 would be affected" in planned.err
    ran = cli("dead", "replay", "--all", "--limit", 2, "--yes", "-o", "name")
    assert ran.code == 0
    assert ran.out.split() == [str(job_id) for job_id in made[:2]]
    assert "3 jobs more match." in ran.err
    assert cli("jobs", "retry", *made, "--limit", 1, "-o", "name").out.split() == [str(made[2])]


def test_a_rate_is_kept(cli: Cli, connection: Connection) -> None:
    """What comes back to life must not fall upon a service that has just recovered."""
    for _ in range(4):
        put(connection, "dead")
    begun = monotonic()
    assert cli("dead", "replay", "--all", "--yes", "--rate", "120/m").code == 0
    assert monotonic() - begun > 0.9  # the last two had to wait for a second
    assert cli("dead", "replay", "--all", "--yes", "--rate", "0").code == 2
    assert cli("dead", "replay", "--all", "--yes", "--rate", "fast").code == 2
